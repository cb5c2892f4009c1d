"""Stand-alone programs that ask an export; the demo copies them beside what they ask."""
