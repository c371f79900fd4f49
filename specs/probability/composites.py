"""Distributions that are made of others, as functions of the tensors that they are made from."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_probability as tfp

tfd, tfb = tfp.distributions, tfp.bijectors
Matrix = tf.linalg.LinearOperatorFullMatrix
Kernel = tfp.math.psd_kernels.ExponentiatedQuadratic


def _chain(loc, scale):
    return tfd.MarkovChain(
        tfd.Normal(loc, scale), lambda _, state: tfd.Normal(0.5 * state + loc, scale), num_steps=3
    )


def _state_space(transition, noise, observation):
    return tfd.LinearGaussianStateSpaceModel(
        num_timesteps=3,
        transition_matrix=transition,
        transition_noise=tfd.MultivariateNormalDiag(scale_diag=noise),
        observation_matrix=observation,
        observation_noise=tfd.MultivariateNormalDiag(scale_diag=noise[:1]),
        initial_state_prior=tfd.MultivariateNormalDiag(scale_diag=noise),
    )


def _regression(family, *first, points, length, noise, observed):
    return family(
        *first,
        Kernel(length_scale=length),
        index_points=points,
        observation_index_points=points[:1] + 1.0,
        observations=observed,
        observation_noise_variance=noise,
    )


# By the name of a class: its tensors by the names of the inputs of its spec.
DISTRIBUTIONS = {
    "Autoregressive": lambda loc, scale: tfd.Autoregressive(
        lambda x: tfd.Independent(tfd.Normal(loc + 0.3 * tf.roll(x, 1, -1) * [0.0, 1.0], scale), 1),
        sample0=tf.zeros(2, tf.float64),
    ),
    "BatchBroadcast": lambda loc, scale: tfd.BatchBroadcast(tfd.Normal(loc, scale), [2]),
    "BatchConcat": lambda loc, scale: tfd.BatchConcat(
        [tfd.Normal(loc, scale), tfd.Normal(-loc, 1.0)], axis=0
    ),
    "BatchReshape": lambda loc, scale: tfd.BatchReshape(tfd.Normal(loc, scale), [2, 1]),
    "Blockwise": lambda loc, scale: tfd.Blockwise([tfd.Normal(loc, scale), tfd.Gumbel(loc, scale)]),
    "Deterministic": tfd.Deterministic,
    "DeterminantalPointProcess": tfd.DeterminantalPointProcess,
    "Empirical": tfd.Empirical,
    "GaussianProcess": lambda points, length, noise: tfd.GaussianProcess(
        Kernel(length_scale=length), points, observation_noise_variance=noise
    ),
    "GaussianProcessRegressionModel": lambda **inputs: _regression(
        tfd.GaussianProcessRegressionModel, **inputs
    ),
    "HiddenMarkovModel": lambda initial, transition, loc, scale: tfd.HiddenMarkovModel(
        tfd.Categorical(logits=initial),
        tfd.Categorical(logits=transition),
        tfd.Normal(loc, scale),
        num_steps=3,
    ),
    "Independent": lambda loc, scale: tfd.Independent(tfd.Normal(loc, scale), 1),
    "Inflated": lambda inflated_loc_logits, loc, scale: tfd.Inflated(
        tfd.Normal(loc, scale), inflated_loc_logits=inflated_loc_logits
    ),
    "LambertWDistribution": lambda loc, scale, tailweight: tfd.LambertWDistribution(
        tfd.Logistic(loc, scale), shift=loc, scale=scale, tailweight=tailweight
    ),
    "LinearGaussianStateSpaceModel": _state_space,
    "MarkovChain": _chain,
    "Masked": lambda loc, scale: tfd.Masked(tfd.Normal(loc, scale), [True, False]),
    "MatrixNormalLinearOperator": lambda loc, row, column: tfd.MatrixNormalLinearOperator(
        loc, Matrix(row), Matrix(column)
    ),
    "MatrixTLinearOperator": lambda df, loc, row, column: tfd.MatrixTLinearOperator(
        df, loc, Matrix(row), Matrix(column)
    ),
    "Mixture": lambda logits, loc, scale: tfd.Mixture(
        tfd.Categorical(logits=logits), [tfd.Normal(loc, scale), tfd.Logistic(-loc, scale)]
    ),
    "MixtureSameFamily": lambda logits, loc, scale: tfd.MixtureSameFamily(
        tfd.Categorical(logits=logits), tfd.Normal(loc, scale)
    ),
    "MultivariateNormalLinearOperator": lambda loc, scale: tfd.MultivariateNormalLinearOperator(
        loc, Matrix(scale)
    ),
    "MultivariateStudentTLinearOperator": lambda df, loc, scale: tfd.MultivariateStudentTLinearOperator(
        df, loc, Matrix(scale)
    ),
    "QuantizedDistribution": lambda loc, scale: tfd.QuantizedDistribution(
        tfd.Normal(loc, scale), low=-2.0, high=3.0
    ),
    "Sample": lambda loc, scale: tfd.Sample(tfd.Normal(loc, scale), 2),
    "StudentTProcess": lambda df, points, length, noise: tfd.StudentTProcess(
        df, Kernel(length_scale=length), points, observation_noise_variance=noise
    ),
    "StudentTProcessRegressionModel": lambda df, **inputs: _regression(
        tfd.StudentTProcessRegressionModel, df, **inputs
    ),
    "TransformedDistribution": lambda loc, scale: tfd.TransformedDistribution(
        tfd.Normal(loc, scale), tfb.Softplus()
    ),
    "VariationalGaussianProcess": lambda points, length, noise, inducing, loc, scale: (
        tfd.VariationalGaussianProcess(
            Kernel(length_scale=length),
            points,
            inducing,
            loc,
            scale,
            observation_noise_variance=noise,
        )
    ),
    "VectorDeterministic": tfd.VectorDeterministic,
    "WishartLinearOperator": lambda df, scale: tfd.WishartLinearOperator(
        df, tf.linalg.LinearOperatorLowerTriangular(scale)
    ),
}
