"""A feature extractor in scikit-learn's pipelines; importing this needs scikit-learn."""

import numpy as np

from keras_lm.utils.optional_dependencies import require

base = require("sklearn.base", "FeatureExtractor.as_transformer()")


class TextTransformer(base.TransformerMixin, base.BaseEstimator):
    """Texts → vectors, as a transformer of scikit-learn. There is nothing to fit.

    Args:
        extractor: `keras_lm.tasks.FeatureExtractor` that pools. Clones share it, and pickles hold
            it whole.
        batch_size: int.

    Example:

        pipeline = make_pipeline(extractor.as_transformer(), LogisticRegression())
        pipeline.fit(["a joy", "a waste"], ["good", "bad"]).predict(["I laughed"])
    """

    def __init__(self, extractor, batch_size=32):
        self.extractor = extractor
        self.batch_size = batch_size

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        """Return vectors (B, D) of texts, in any form that `FeatureExtractor.embed` takes."""
        vectors = self.extractor.embed(X, self.batch_size)["embedding"]
        return vectors.reshape(len(vectors), -1)

    def get_feature_names_out(self, input_features=None):
        width = int(np.prod(self.extractor.output.shape[1:]))
        return np.array([f"embedding{i}" for i in range(width)], dtype=object)

    def __sklearn_clone__(self):
        # By default, parameters are copied: the whole network.
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self):
        return True
