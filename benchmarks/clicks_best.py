"""Train the best possible model of the simulated clicks, which knows the simulator except for the effects of the ids.

python -m benchmarks.clicks_best ROWS HELD_OUT ANSWERS.npy [--seed 0] [--epochs 20]

The model learns from the first ROWS impressions of a log, and writes the log-odds of a click for the next HELD_OUT
impressions to ANSWERS. It knows the formula of the log-odds, the effects of all columns except the ids, and the
distribution of the hidden effects of ids. It learns the posterior distribution of these effects by mean-field
variational inference with reparametrised draws (Kingma & Welling 2014, Auto-Encoding Variational Bayes).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from data.clicks import ID_EFFECT, TASTE_EFFECT, TASTE_SIZE, Impressions

_BATCH = 8_192
_RATE = 0.02
_SPREAD = -3.0
"""Initial logarithm of the standard deviations of the posterior; the prior has 0."""
_TASTES = ("user", "item")


class Effects:
    """Posterior distributions of the effects of ids, and of the tastes of users and items.

    They are normal with mean `mean` and standard deviation exp(`spread`), before the factors of the simulator.

    Args:
      ids: Kind (user, item, site) → number of ids.
    """

    def __init__(self, ids: dict[str, int]) -> None:
        widths = {kind: 1 + TASTE_SIZE * (kind in _TASTES) for kind in ids}
        random = tf.random.Generator.from_seed(1)
        self.mean = {kind: tf.Variable(0.1 * random.normal([ids[kind], width])) for kind, width in widths.items()}
        self.spread = {kind: tf.Variable(tf.fill([ids[kind], width], _SPREAD)) for kind, width in widths.items()}

    def log_odds(self, ids: dict[str, Any], knows_site: Any, drawn: bool) -> Any:
        """Compute the ids' contribution to the log-odds from a draw of the effects or from their means, [batch]."""
        effects = {kind: tf.gather(self.mean[kind], rows) for kind, rows in ids.items()}
        if drawn:
            for kind, rows in ids.items():
                noise = tf.random.normal(tf.shape(effects[kind]))
                effects[kind] += tf.exp(tf.gather(self.spread[kind], rows)) * noise
        id_effects = {kind: ID_EFFECT[kind] * values[:, 0] for kind, values in effects.items()}
        taste = tf.reduce_sum(effects["user"][:, 1:] * effects["item"][:, 1:], axis=1)
        return (
            id_effects["user"]
            + id_effects["item"]
            + id_effects["site"] * knows_site
            + TASTE_EFFECT / np.sqrt(TASTE_SIZE) * taste
        )

    def divergence(self, kind: str, rows: Any) -> Any:
        """Compute the divergence of the posterior from the prior for the id of each row, in nats, [batch]."""
        mean, spread = tf.gather(self.mean[kind], rows), tf.gather(self.spread[kind], rows)
        return tf.reduce_sum((mean**2 + tf.exp(2 * spread) - 1) / 2 - spread, axis=1)


def predict(log: Impressions, rows: int, held_out: int, epochs: int) -> Any:
    """Learn from the first rows of a log, and return the log-odds of a click in the next rows, [held_out]."""
    effects = _learn(log, rows, epochs)
    drawn = log.draw(rows, rows + held_out)
    ids = {kind: drawn.chosen[kind].astype(np.int32) for kind in ID_EFFECT}
    by_ids = effects.log_odds(ids, drawn.known["site"].astype(np.float32), drawn=False)
    return drawn.open_log_odds + by_ids.numpy()


def _learn(log: Impressions, rows: int, epochs: int) -> Effects:
    drawn = log.draw(0, rows)
    clicked = log.make_rows(0, rows)["clicked"].to_numpy().astype(np.float32)
    ids = {kind: drawn.chosen[kind].astype(np.int32) for kind in ID_EFFECT}
    # The divergence of an id counts once per epoch, divided equally among its rows.
    shares = {kind: (1 / np.bincount(rows_of_ids)[rows_of_ids]).astype(np.float32) for kind, rows_of_ids in ids.items()}
    effects = Effects({kind: log.count_ids(kind) for kind in ids})
    steps = rows // _BATCH
    optimizer = tf_keras.optimizers.legacy.Adam(tf_keras.optimizers.schedules.CosineDecay(_RATE, epochs * steps))

    def step(ids: Any, shares: Any, open_log_odds: Any, knows_site: Any, clicked: Any) -> None:
        with tf.GradientTape() as tape:
            log_odds = open_log_odds + effects.log_odds(ids, knows_site, drawn=True)
            bound = tf.nn.sigmoid_cross_entropy_with_logits(clicked, log_odds)
            bound += sum(shares[kind] * effects.divergence(kind, rows) for kind, rows in ids.items())
            loss = tf.reduce_mean(bound)
        variables = [*effects.mean.values(), *effects.spread.values()]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    one_step = tf.function(step, autograph=False)
    random = np.random.default_rng(0)
    open_log_odds, knows_site = drawn.open_log_odds.astype(np.float32), drawn.known["site"].astype(np.float32)
    for _ in range(epochs):
        order = random.permutation(rows)[: steps * _BATCH].reshape(steps, _BATCH)
        for batch in order:
            one_step(
                {kind: rows_of_ids[batch] for kind, rows_of_ids in ids.items()},
                {kind: share[batch] for kind, share in shares.items()},
                open_log_odds[batch],
                knows_site[batch],
                clicked[batch],
            )
    return effects


def main() -> None:
    """Learn, and write the predictions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rows", type=int)
    parser.add_argument("held_out", type=int)
    parser.add_argument("answers")
    parser.add_argument("--seed", type=int, default=0, help="seed of the log")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    tf.random.set_seed(1)
    log = Impressions(options.rows + options.held_out, options.seed)
    np.save(options.answers, predict(log, options.rows, options.held_out, options.epochs))


if __name__ == "__main__":
    main()
