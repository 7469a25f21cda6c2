"""Fit pipelines on tables and use their runs, from Python.

    from tfx_pipeline import fit

    run = fit(customers, label="churned")    # a DataFrame, an Arrow table, or the path of a file
    run.verdict                              # "blessed": the model meets the thresholds and was pushed
    run.metrics                              # {"auc": 0.91, ...}
    run.importance                           # how much the model depends on each column
    run.predict(new_customers)               # a DataFrame with the predictions of each row

The command line does the work, in a process of its own. Therefore this package imports neither TensorFlow nor the
packages of this project, whose names may also be names of your own modules.
"""

from __future__ import annotations

from tfx_pipeline.command_line import CommandError
from tfx_pipeline.fitting import fit
from tfx_pipeline.run import Report, Run, compare, load

__all__ = ["CommandError", "Report", "Run", "compare", "fit", "load"]
