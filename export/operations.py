"""The operations that a SavedModel may have: those of TF Serving's stock binaries from 2.18 on."""

import re

from keras_lm.tensorflow import tf

# Patterns of TensorFlow's own operations that cannot be served → why; the first match counts.
FORBIDDEN = {
    r"PyFunc": "it calls Python, which TF Serving does not have: write it in TensorFlow operations",
    r"^_?Xla|Xla(Split|Concat)": "it needs XLA, which is off in TF Serving",
    r"TPU|Tpu": "it runs on TPUs only, which TF Serving does not have",
    r"^(Resource)?(Sparse)?(Accumulator)?Apply[A-Z]": "it is part of training",
}
COMPILED = "_XlaMustCompile"  # the attribute that jit_compile=True leaves

# TF Text 2.12, as linked into TF Serving 2.18 and 2.19. That of 2.20 has three more, which no
# export needs: RoundRobinTrim, RoundRobinGenerateMasks and Utf8Binarize.
TEXT_OPERATIONS = frozenset(
    [
        "CaseFoldUTF8",
        "ConstrainedSequence",
        "FastBertNormalize",
        "FastWordpieceTokenizeWithOffsets",
        "FindSourceOffsets",
        "MaxSpanningTree",
        "NormalizeUTF8",
        "NormalizeUTF8WithOffsetsMap",
        "PhraseTokenize",
        "RegexSplitWithOffsets",
        "RougeL",
        "SentenceFragments",
        "SentenceFragmentsV2",
        "SentencepieceDetokenizeOp",
        "SentencepieceIdToStringOp",
        "SentencepieceOp",
        "SentencepieceStringToIdOp",
        "SentencepieceTokenizeOp",
        "SentencepieceTokenizeWithOffsetsOp",
        "SentencepieceVocabSizeOp",
        "SplitMergeTokenizeWithOffsets",
        "TFText>BoiseTagsToOffsets",
        "TFText>ByteSplitByOffsets",
        "TFText>ByteSplitWithOffsets",
        "TFText>FastSentencepieceDetokenize",
        "TFText>FastSentencepieceTokenize",
        "TFText>FastWordpieceDetokenize",
        "TFText>NgramsStringJoin",
        "TFText>OffsetsToBoiseTags",
        "TFText>PhraseDetokenize",
        "TFText>WhitespaceTokenizeWithOffsetsV2",
        "TokenizerFromLogits",
        "UnicodeScriptTokenizeWithOffsets",
        "WhitespaceTokenizeWithOffsets",
        "WordpieceTokenizeWithOffsets",
    ]
)


def check(meta_graph, layer_names=(), has_text=True):
    """Raise a ValueError if TF Serving's stock binary lacks an operation of a graph.

    It may not have those of TensorFlow Text unless `has_text`.

    `layer_names` distinguish the numbers in layer names from those that TensorFlow appends.
    """
    graph = _Graph(meta_graph.graph_def)
    problems = {}
    for function, node in graph.nodes():
        reason = _reason(node, graph)
        if node.op in TEXT_OPERATIONS and not has_text:
            reason = f"operation {node.op}", "it is one of TensorFlow Text, not of TensorFlow"
        if reason:
            where = layer_path(graph.scopes(function, node), layer_names)
            problems[f"{reason[0]} in {where}: {reason[1]}"] = None  # an ordered set
    if problems:
        raise ValueError("the model cannot be served. " + "; ".join(problems) + ".")


def _reason(node, graph):
    """Return (what, why) if a node cannot be served, else None."""
    functions = [graph.functions[name] for name in graph.called(node)]
    if any(COMPILED in part.attr and part.attr[COMPILED].b for part in (node, *functions)):
        return "jit_compile=True", "it needs XLA, which is off in TF Serving: leave it out"
    if node.op in graph.functions or node.op in TEXT_OPERATIONS:
        return None
    for pattern, why in FORBIDDEN.items():
        if re.search(pattern, node.op):
            return f"operation {node.op}", why
    if not hasattr(tf.raw_ops, node.op):
        why = "TF Serving 2.18 only has the operations of TensorFlow and TensorFlow Text 2.12"
        return f"operation {node.op}", why
    return None


class _Graph:
    """A graph and the functions that it calls."""

    def __init__(self, graph_def):
        self.main = graph_def.node
        self.functions = {f.signature.name: f for f in graph_def.library.function}
        self._callers = {}  # function → (function or None, node) of one call
        for function, node in self.nodes():
            for name in self.called(node):
                self._callers.setdefault(name, (function, node))

    def nodes(self):
        """Yield (name of the function or None, node) for all nodes."""
        for node in self.main:
            yield None, node
        for name, function in self.functions.items():
            for node in function.node_def:
                yield name, node

    def called(self, node):
        names = [node.op]
        for value in node.attr.values():
            names += [value.func.name, *(f.name for f in value.list.func)]
        return [name for name in names if name in self.functions]

    def scopes(self, function, node):
        """Return the name scopes around a node, through all callers, the outermost first."""
        scopes, seen = node.name.split("/")[:-1], set()
        while function in self._callers and function not in seen:  # functions may be recursive
            seen.add(function)
            function, caller = self._callers[function]
            scopes = caller.name.split("/")[:-1] + scopes
        return scopes


def layer_path(scopes, layer_names):
    """Return the layer that name scopes belong to; TensorFlow appends `_1` to repeated names."""
    path = []
    for scope in scopes:
        shorter = re.sub(r"_\d+$", "", scope)
        path.append(shorter if scope not in layer_names and shorter in layer_names else scope)
    return f"layer {'/'.join(path)}" if path else "the graph itself"


def names_of_layers(task):
    """Return the names of all layers of a task, at any depth."""
    return {layer.name for layer in task._flatten_layers()}
