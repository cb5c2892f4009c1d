"""The files that start servers: whether they name what is there."""

import ast
import re
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from keras_lm.serving.launch import IMAGE
from keras_lm.serving.rest import PROBES


@pytest.fixture(scope="module")
def deploy(repository):
    return repository / "deploy"


def test_the_image_is_made_of_files_that_reach_the_builder(repository, deploy):
    text = (deploy / "Dockerfile").read_text()
    kept = [
        line[1:] for line in (repository / ".dockerignore").read_text().split() if line[0] == "!"
    ]
    assert all((repository / name).exists() for name in kept)
    # What the wheel is made of, and what is copied beside it.
    needed = [
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "keras_lm_command.py",
        "keras_lm",
    ]
    mapped = re.search(r"^MAPPED = (\{.*\})$", (repository / "setup.py").read_text(), re.M)[1]
    needed += ast.literal_eval(mapped).values()
    (copied,) = re.findall(r"^COPY (deploy/\S+(?: deploy/\S+)*) /usr/local/bin/$", text, re.M)
    needed += copied.split()
    assert set(needed) <= set(kept)
    assert f'CMD ["{Path(needed[-1]).name}"]' in text
    (probe,) = re.findall(r'}(/\w+)"', (repository / needed[-1]).read_text())
    assert probe in PROBES


def test_the_image_serves_what_is_mounted(deploy, tmp_path):
    models, binaries = tmp_path / "models", tmp_path / "bin"
    models.mkdir()
    binaries.mkdir()
    fake = binaries / "keras-lm"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)

    def serve(*options, **environment):
        environment |= {"MODELS": str(models), "PATH": f"{binaries}:/usr/bin:/bin"}
        command = ["sh", str(deploy / "serve"), *options]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=models)

    empty = serve()
    assert empty.returncode == 1 and "mount exports" in empty.stderr
    for name in ("critic", "vectors.tflite"):
        (models / name).mkdir()
    command, *rest = serve("--max-rows", "8", ALLOWED_HOSTS="a.org *").stdout.split("\n")
    assert command == "serve" and rest[:2] == [f"{models}/critic", f"{models}/vectors.tflite"]
    assert rest[2:4] == ["--engine", "embedded"]
    assert rest[-7:-1] == ["--max-rows", "8", "--allowed-host", "a.org", "--allowed-host", "*"]


def test_compose_has_both_servers_with_health_checks(deploy):
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    official, ours = services["tensorflow-serving"], services["keras-lm"]
    assert official["image"] == IMAGE
    name = official["environment"]["MODEL_NAME"]
    assert f"/v1/models/{name} " in official["healthcheck"]["test"][-1]
    assert (deploy / ours["build"]["context"] / ours["build"]["dockerfile"]).is_file()
    assert "HEALTHCHECK" in (deploy / "Dockerfile").read_text()
    places = {volume.partition("}:")[2] for each in services.values() for volume in each["volumes"]}
    assert places == {f"/models/{name}:ro"}
    ports = [port.split(":")[1] for each in services.values() for port in each["ports"]]
    assert len(set(ports)) == len(ports)


def test_kserve_asks_what_the_server_answers(deploy):
    official, ours = yaml.safe_load_all((deploy / "kserve.yaml").read_text())
    for manifest in (official, ours):
        assert manifest["apiVersion"] == "serving.kserve.io/v1beta1"
        assert manifest["kind"] == "InferenceService"
    model = official["spec"]["predictor"]["model"]
    # TF Serving's own path, under the name that KServe gives the model.
    name = official["metadata"]["name"]
    assert model["readinessProbe"]["httpGet"]["path"] == f"/v1/models/{name}"
    assert model["runtimeVersion"] == IMAGE.partition(":")[2]
    (container,) = ours["spec"]["predictor"]["containers"]
    exposed = re.search(r"^EXPOSE (.*)$", (deploy / "Dockerfile").read_text(), re.M)[1].split()
    (port,) = (str(each["containerPort"]) for each in container["ports"])
    assert port in exposed
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in {"/healthz", *PROBES}
        assert str(container[probe]["httpGet"]["port"]) == port
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": ours["metadata"]}
    pod["spec"] = ours["spec"]["predictor"]
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    (volume,) = ours["spec"]["predictor"]["volumes"]
    assert container["volumeMounts"][0]["name"] == volume["name"]


def an_object(required=(), **properties):
    closed = {"type": "object", "additionalProperties": False, "properties": properties}
    return closed | {"required": [*required]}


NAME = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": NAME}
ANYTHING = {}  # of Kubernetes' own, whose schema is asked
POD_PATCH = an_object(
    containers={"type": "array", "items": an_object(["name"], name=NAME, volumeMounts=ANYTHING)},
    volumes=ANYTHING,
)
# What of a TrainJob of trainer.kubeflow.org/v1alpha1 the file may have.
TRAINJOB = an_object(
    ["runtimeRef"],
    runtimeRef=an_object(["name"], name=NAME, kind=NAME, apiGroup=NAME),
    trainer=an_object(
        numNodes={"type": "integer"},
        image=NAME,
        command=TEXTS,
        args=TEXTS,
        env=ANYTHING,
        resourcesPerNode=ANYTHING,
    ),
    runtimePatches={
        "type": "array",
        "items": an_object(
            ["manager"],
            manager=NAME,
            trainingRuntimeSpec=an_object(
                template=an_object(
                    spec=an_object(
                        replicatedJobs={
                            "type": "array",
                            "items": an_object(
                                ["name"],
                                name=NAME,
                                template=an_object(
                                    spec=an_object(template=an_object(spec=POD_PATCH))
                                ),
                            ),
                        }
                    )
                )
            ),
        ),
    },
)


def test_the_training_job_is_one_of_kubeflow_trainer(deploy):
    job = yaml.safe_load((deploy / "trainjob.yaml").read_text())
    assert job["apiVersion"] == "trainer.kubeflow.org/v1alpha1" and job["kind"] == "TrainJob"
    jsonschema.validate(job["spec"], TRAINJOB)
    assert job["spec"]["runtimeRef"]["name"] == "jax-distributed"
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    patched = node["template"]["spec"]["template"]["spec"]
    (container,) = patched["containers"]
    assert node["name"] == container["name"] == "node"  # the runtime's names
    trainer = job["spec"]["trainer"]
    assert {"name": "KERAS_BACKEND", "value": "jax"} in trainer["env"]
    whole = {name: trainer[name] for name in ("image", "command", "env")}
    whole |= container | {"resources": trainer["resourcesPerNode"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": job["metadata"]}
    pod["spec"] = {"containers": [whole], "volumes": patched["volumes"]}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    (mount,) = container["volumeMounts"]
    assert trainer["command"][-1].startswith(mount["mountPath"])


def test_kubeflows_own_classes_read_the_training_job(deploy):
    models = pytest.importorskip(
        "kubeflow_trainer_api.models", reason="needs: pip install kubeflow-trainer-api"
    )
    job = yaml.safe_load((deploy / "trainjob.yaml").read_text())
    read = models.TrainerV1alpha1TrainJob.from_dict(job).to_dict()  # drops what it does not know
    assert read == job
