"""`stayfinite demo`: one small T5 trained three times side by side: in fp32, in fp16 unguarded, in fp16 guarded."""
