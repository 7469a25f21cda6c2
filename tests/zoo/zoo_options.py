"""Tables of operations with options, such as weights of words; see `zoo_tables`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import zoo_reference as reference
from sklearn.feature_extraction.text import TfidfVectorizer
from zoo_reference import Training
from zoo_tables import Columns, Expected, Table, table, with_rows

_VALUES = 8


def _tf_idf(texts: Sequence[str | None], training: Training, size: int) -> npt.NDArray[np.float64]:
    """Return the IDs of the words of texts, then their weights by scikit-learn; shape [rows, 2 * _VALUES]."""
    words = [[word.decode() for word in reference.words(text, 2)] for text in texts]
    known = [row for row, is_training in zip(words, training, strict=True) if is_training and row]
    documents = [word.encode() for row in known for word in dict.fromkeys(row)]
    names = [word.decode() for word in reference.vocabulary(documents, size)]
    vectorizer = TfidfVectorizer(analyzer=lambda row: row, vocabulary=names).fit(known)
    weights = vectorizer.transform(words).toarray()
    ids = [[names.index(word) + 1 for word in dict.fromkeys(row) if word in names] for row in words]
    weights_of_rows = np.zeros((len(texts), _VALUES))
    for row, values in enumerate(ids):
        weights_of_rows[row, : len(values)] = weights[row, np.array(values, int) - 1]
    return np.concatenate([reference.pad(ids, _VALUES), weights_of_rows], axis=1)


@table
def weighted_texts() -> Table:
    """Texts with weights: repeated, missing, empty and unknown words, and texts that are all equal."""
    notes = ["red shoes, red hat", "Red HAT", None, "", "... !", "blue hat and shoes", "line\nbreak", "red", "size 42"]
    note = [notes[row % len(notes)] for row in range(48)]
    # Rows of the eval split contain words that the training split does not.
    note[2], note[5], note[8] = "zebra", "red zebra", "a hat a hat a hat"
    columns = {"note": note, "same": ["all are equal"] * 48, "y": [row % 2 for row in range(48)]}

    def compute(columns: Columns, training: Training) -> Expected:
        return {
            "note_text": _tf_idf(columns["note"], training, 9),
            "same_text": _tf_idf(columns["same"], training, 20),
        }

    options = {"weighting": "tf_idf", "max_values": _VALUES}
    return Table(
        with_rows(columns),
        {
            "columns": {
                "note": {"text": {**options, "vocabulary": 9}},
                "same": {"text": {**options, "vocabulary": 20}},
            }
        },
        compute,
        "y",
        lambda columns: np.array(columns["y"]),
        stored="parquet",
    )
