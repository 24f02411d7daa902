"""deploy/kubernetes: by Kubernetes' own schemas, strictly, and against settings, image and package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from telegram_connector import __version__
from telegram_connector.errors import SettingsError
from telegram_connector.settings import Settings, variables

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
DOCKERFILE = (FOLDER.parent / "Dockerfile").read_text()
MANIFESTS = {
    path.name: yaml.safe_load(path.read_text())
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name != "kustomization.yaml"
}
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
DEPLOYMENT = MANIFESTS["deployment.yaml"]["spec"]
PODS = [DEPLOYMENT["template"]["spec"], MANIFESTS["provision.yaml"]["spec"]["template"]["spec"]]
CONTAINER = PODS[0]["containers"][0]
# The oldest that is looked at: there the youngest field that is used is on by default.
OLDEST = "1.27"


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", MANIFESTS)
def test_the_schema_knows_every_field(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


def test_a_field_that_there_is_not_is_found() -> None:
    wrong = {**MANIFESTS["disruption.yaml"], "spec": {"minAvailble": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, OLDEST, strict=True)


def test_what_is_applied_is_there_and_holds_no_secret() -> None:
    assert KUSTOMIZATION["resources"] == ["deployment.yaml", "disruption.yaml", "network.yaml"]
    assert not [name for name in KUSTOMIZATION["resources"] if MANIFESTS[name]["kind"] == "Secret"]


def test_the_image_is_of_this_version() -> None:
    (image,) = KUSTOMIZATION["images"]
    assert image["name"] == CONTAINER["image"]
    assert image["newTag"] == __version__
    assert PODS[1]["containers"][0]["image"] == f"{image['newName']}:{__version__}"


def test_settings_are_known_and_the_examples_are_refused_by_name() -> None:
    example = MANIFESTS["secret.example.yaml"]["stringData"]
    given = {item["name"]: item["value"] for item in CONTAINER["env"]}
    assert set(example) | set(given) <= set(variables(Settings))
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({**example, **given})
    named = {fault.split()[0] for fault in caught.value.faults}
    assert named == {"TELEGRAM_BOT_TOKEN", "TELEGRAM_CHAT_ID", "NATS_TELEGRAM_NKEY_SEED"}


def test_a_stop_has_more_time_than_the_connector_takes() -> None:
    assert PODS[0]["terminationGracePeriodSeconds"] >= Settings().drain_seconds + 5


def test_a_standby_is_at_hand_before_anybody_is_stopped() -> None:
    assert DEPLOYMENT["replicas"] == 2
    assert DEPLOYMENT["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_probes_and_scrapes_go_to_the_page() -> None:
    given = {item["name"]: item["value"] for item in CONTAINER["env"]}
    (port,) = CONTAINER["ports"]
    assert str(port["containerPort"]) == given["TG_METRICS_PORT"]
    probes = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    assert DEPLOYMENT["template"]["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": given["TG_METRICS_PORT"],
        "prometheus.io/path": "/metrics",
    }


def test_every_selector_finds_the_pods() -> None:
    labels = DEPLOYMENT["template"]["metadata"]["labels"]
    assert DEPLOYMENT["selector"]["matchLabels"] == labels
    assert MANIFESTS["disruption.yaml"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["network.yaml"]["spec"]["podSelector"]["matchLabels"] == labels
    assert PODS[0]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels


@pytest.mark.parametrize("pod", PODS, ids=["connector", "provision"])
def test_pods_have_no_rights_and_run_as_the_images_user(pod: dict[str, Any]) -> None:
    user, group = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)[-1]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "runAsGroup": int(group),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
