"""What tests of this package and of projects share."""
