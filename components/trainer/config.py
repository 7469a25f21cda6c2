"""The `training` section: how long, how large, how fast."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from components.section import Section


class TrainingConfig(Section):
    """How the model is trained."""

    steps: PositiveInt = 1000
    """Optimizer steps in all."""
    batch_size: PositiveInt = 256
    """Examples per step."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """The peak of a cosine schedule that ends near 0."""
    shuffle_buffer: PositiveInt = 100_000
    """Examples held in memory to shuffle from."""
    eval_steps: PositiveInt = 100
    """With your own run_fn: the `eval_steps` it is handed, batches of the eval split for a look while it trains."""
    seed: int = Field(default=1, ge=0)
    """Seed of weights and shuffling."""
