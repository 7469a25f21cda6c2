"""EdgeExporter: convert a blessed model to variants for small devices, and judge every variant."""
