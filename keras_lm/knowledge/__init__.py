"""Knowledge beside texts: graphs of concepts on disk, their vectors, and paths through them."""

from keras_lm.knowledge.concept_store import ConceptStore
from keras_lm.knowledge.conceptnet import read_conceptnet
from keras_lm.knowledge.concepts import Concepts
from keras_lm.knowledge.paths import PathFinder
from keras_lm.knowledge.pictures import draw_explanation
from keras_lm.knowledge.schema_graphs import SchemaGraphs, pack_graph
from keras_lm.knowledge.trans_e import TransE
from keras_lm.knowledge.triples import read_triples, write_triples

__all__ = [
    "ConceptStore",
    "Concepts",
    "PathFinder",
    "SchemaGraphs",
    "TransE",
    "draw_explanation",
    "pack_graph",
    "read_conceptnet",
    "read_triples",
    "write_triples",
]
