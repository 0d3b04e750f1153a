"""deploy/kubernetes: what kustomize makes of it passes Kubernetes' own schemas and keeps promises.

Only a cluster can show that it runs: the workflow's job `kubernetes` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
PLACES = ("base", "overlays/kind", "overlays/flower", "overlays/autoscaled")
KUBECTL = Path(sys.executable).with_name("kubectl")
# KEDA's kinds are not Kubernetes' own: there is no schema to hold them to.
FOREIGN = "keda.sh/"


def rendered(place: str) -> list[dict[str, Any]]:
    """What `kubectl apply --kustomize` would send."""
    done = subprocess.run(
        [KUBECTL, "kustomize", KUBERNETES / place],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def named(place: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in rendered(place)}


def pods(place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for (kind, name), manifest in named(place).items():
        if kind in ("Deployment", "Job"):
            yield name, manifest["spec"]["template"]["spec"]


def strictly(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("place", PLACES)
def test_the_manifests_pass_the_schemas(place: str) -> None:
    own = [each for each in rendered(place) if not each["apiVersion"].startswith(FOREIGN)]
    assert len(own) >= 7
    for manifest in own:
        strictly(manifest)


def test_the_example_secret_passes_too_and_is_what_the_pods_read() -> None:
    secret = yaml.safe_load((KUBERNETES / "secret.example.yaml").read_text())
    strictly(secret)
    assert secret["metadata"] == {"name": "factory-servers", "namespace": "fencepost"}
    for _, pod in pods("base"):
        sources = pod["containers"][0]["envFrom"]
        assert {"secretRef": {"name": "factory-servers"}} in sources
        assert {"configMapRef": {"name": "factory"}} in sources
    assert ("Secret", "factory-servers") not in named("base")


def test_the_schemas_find_a_mistake() -> None:
    worker = named("base")[("Deployment", "worker")]
    worker["spec"]["template"]["spec"]["containers"][0]["imagePullPolcy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        strictly(worker)


@pytest.mark.parametrize("place", PLACES)
def test_every_pod_is_restricted_and_bounded(place: str) -> None:
    for name, pod in pods(place):
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False, name
        assert security["capabilities"] == {"drop": ["ALL"]}, name
        assert container["resources"]["limits"]["memory"], name
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}, name
        if container["image"].startswith("fencepost-factory"):
            assert security["readOnlyRootFilesystem"], name


def test_there_are_two_workers_with_time_to_leave() -> None:
    worker = named("base")[("Deployment", "worker")]["spec"]
    assert worker["replicas"] == 2
    pod = worker["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 600
    (container,) = pod["containers"]
    assert container["readinessProbe"]["exec"] == container["startupProbe"]["exec"]
    # A broker that is away must not have all workers killed.
    assert "livenessProbe" not in container


def test_nobody_else_decides_about_the_number_of_scaled_workers() -> None:
    there = named("overlays/autoscaled")
    assert "replicas" not in there[("Deployment", "worker")]["spec"]
    scaled = there[("ScaledObject", "worker")]["spec"]
    assert scaled["scaleTargetRef"] == {"name": "worker"}
    assert scaled["minReplicaCount"] >= 1


def test_only_the_throw_away_cluster_looks_for_fault_plans() -> None:
    for place in PLACES:
        config = named(place)[("ConfigMap", "factory")]["data"]
        assert ("FENCEPOST_FAULTS" in config) == (place == "overlays/kind")
        assert config["FACTORY_STAGING_DIR"] == "/var/lib/fencepost/staging"
