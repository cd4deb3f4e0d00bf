"""Machine-readable inspections: SARIF for code scanning, GitHub annotations, JUnit."""
