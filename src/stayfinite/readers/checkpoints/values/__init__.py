"""The numbers themselves: streamed past in small pieces, on all cores. The only part of this room that needs torch."""
