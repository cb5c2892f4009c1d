#!/usr/bin/env bash
# Ray 2.60.0 with JAX 0.10.2. On processors JaxTrainer does not call jax.distributed.initialize:
# without an error, each worker is alone and trains a model of its own. JaxConfig(use_tpu=True)
# with JAX_PLATFORMS=cpu in the workers makes one group of them.
# Output seen: processes that JAX knows in two workers: 1 by default, 2 with these settings
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet ray==2.60.0 jax==0.10.2 numpy==2.4.6 pandas==3.1.1 \
    pyarrow==25.0.1 fsspec==2026.9.0 pydantic==2.14.4 requests==2.34.2 tensorboardx==2.6.5
env/bin/python - 2>/dev/null <<'END'
import pathlib

import ray
import ray.train
from ray.train.v2.jax import JaxConfig, JaxTrainer


def train(config):
    import jax

    pathlib.Path(config["file"]).write_text(str(jax.process_count()))


def processes(jax_config):
    file = pathlib.Path("processes").absolute()
    trainer = JaxTrainer(
        train,
        train_loop_config={"file": str(file)},
        jax_config=jax_config,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            storage_path=str(file.parent / "runs"),
            worker_runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}},
        ),
    )
    trainer.fit()
    return int(file.read_text())


ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
usual, group = processes(None), processes(JaxConfig(use_tpu=True))
assert (usual, group) == (1, 2), (usual, group)
print(f"processes that JAX knows in two workers: {usual} by default, {group} with these settings")
END
