"""`stampede bench starts`, with few alerts: all figures but those of CPU grow with them."""


def test_a_start_leaves_sections_and_offsets_of_large_runs_unread(measure) -> None:
    found = measure("starts")
    for table in ("cutouts", "detections"):
        of_table = {
            name: figure
            for (subject, name), figure in found.items()
            if subject.startswith(f"start of {table}")
        }
        read = of_table["read, besides the listing"]
        assert 0 < read.value < read.rival.value / 3
        written = of_table["written by the next checkpoint, 64 parts later"]
        assert 0 < written.value < written.rival.value / 3
        assert of_table["requests"].value == 3  # two listings, one checkpoint
        assert of_table["CPU until it can be asked, p50"].met
