"""AllenNLP, the home of ELMo in PyTorch."""

import inputs
from protocol import num_cores, serve, timed


def elmo(elmo, short, batch, calls, variant):
    """The bidirectional language model in inference mode, from characters to all layers."""
    import torch
    from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids

    torch.set_num_threads(num_cores())
    sentences = [text.split() for text in inputs.text_batches(short, batch)[0]]
    ids = batch_to_ids(sentences)
    model = _ElmoBiLm(f"{elmo}/options.json", f"{elmo}/weights.hdf5").eval()

    def run():
        with torch.inference_mode():
            for layer in model(ids)["activations"]:
                layer.numpy()

    return inputs.per_word(timed(run, calls), sentences)


FUNCTIONS = {"elmo": elmo}

if __name__ == "__main__":
    serve(FUNCTIONS, ["torch", "allennlp"])
