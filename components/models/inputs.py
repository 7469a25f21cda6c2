"""What a model reads: its transformed features, as the feature plan and the transform graph say."""

from __future__ import annotations

from dataclasses import dataclass

from components.features import ops
from components.features.ops import Dense, Ids, VocabularySize
from components.features.plan import FeaturePlan


@dataclass(frozen=True)
class Inputs:
    """Transformed feature → what it is, in the order of the config."""

    features: dict[str, Dense | Ids]

    @property
    def dense(self) -> dict[str, Dense]:
        """The features that are numbers."""
        return {name: feature for name, feature in self.features.items() if isinstance(feature, Dense)}

    @property
    def ids(self) -> dict[str, Ids]:
        """The features that are ids."""
        return {name: feature for name, feature in self.features.items() if isinstance(feature, Ids)}


def inputs(plan: FeaturePlan, vocabulary_size: VocabularySize) -> Inputs:
    """The inputs of a model for this plan.

    Args:
      plan: the declared features.
      vocabulary_size: number of entries of a vocabulary, by its file name.
    """
    return Inputs({feature.name: ops.gives(feature, vocabulary_size) for feature in plan.features.declared})
