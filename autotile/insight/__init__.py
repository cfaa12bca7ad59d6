"""Why a variant is as fast as it is: its accesses, its occupancy, its place under the roofline, and what to change."""
