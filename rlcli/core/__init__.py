"""The words of the house: samples, trees, protocols, schedules, random streams, errors. No torch at import except samples and tree."""
