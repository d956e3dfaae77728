"""Every alert rule of the chart, seen to fire and to end: its faults in a real system."""
