"""What is asked, as a weighted union of Kronecker products over few cells (stage 4)."""
