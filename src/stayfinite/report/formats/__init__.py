"""An inspection for other programs: SARIF for code scanning, GitHub's annotations, JUnit for test reports."""
