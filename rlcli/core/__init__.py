"""The words of the house: samples, trees, protocols, schedules, random streams, errors. Only samples imports torch."""
