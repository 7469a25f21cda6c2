"""Run TFX's taxi example unchanged with its LocalDagRunner, as the side with which ours is compared.

python -m benchmarks.stock_taxi FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    """Run the stock pipeline, on its 15,002 real trips and with its 1,000 steps, into an empty folder."""
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner

    folder.mkdir(parents=True)
    LocalDagRunner().run(pipeline(folder, find_stock_example() / "data" / "simple"))


def find_stock_example() -> Path:
    """Return the folder of the example in TFX's wheel."""
    import tfx.examples.chicago_taxi_pipeline as stock

    return Path(stock.__file__).parent


def pipeline(folder: Path, rows: Path) -> Any:
    """Return the stock pipeline.

    Args:
      folder: Folder for the output.
      rows: Folder with CSV files of trips.
    """
    import tfx.examples.chicago_taxi_pipeline.taxi_pipeline_native_keras as stock

    return stock._create_pipeline(
        pipeline_name="stock_taxi",
        pipeline_root=str(folder / "root"),
        data_root=str(rows),
        module_file=str(find_stock_example() / "taxi_utils_native_keras.py"),
        serving_model_dir=str(folder / "serving"),
        metadata_path=str(folder / "metadata.db"),
        beam_pipeline_args=["--direct_running_mode=in_memory", "--direct_num_workers=1"],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
