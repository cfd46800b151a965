"""What a restore would do, and whether it may: asked, planned and judged; changes nothing."""
