"""What deploy/ says of itself, held together: compose.yaml, the Kubernetes base, the scrape config, Grafana's files and the configs in
containers name one another's files, ports, names, flags and users. Each function returns complaints, none where all is well."""
import json
import os
import re
import subprocess

import yaml  # Debian: python3-yaml

from programs import BIN

PROGRAMS = {"coordinator": "arborist-coordinator", "drafter": "arborist-drafter", "verifier": "arborist-verifier"}
IMAGE_ROOT = "/opt/arborist"  # where the Dockerfile unpacks the bundle
BASE = "deploy/kubernetes/base"
COMPOSE = "deploy/compose.yaml"


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def documents(root, path):
    return list(yaml.safe_load_all(read(root, path)))


class Config:
    """A process' config in its container: what other files must agree with."""

    def __init__(self, root, name):
        text = re.sub(r"#.*", "", read(root, f"{BASE}/config/{name}.textproto"))
        self.port = self.number(text, r"\brpc\s*\{[^}]*listen: \"0\.0\.0\.0:(\d+)\"")
        self.metrics_port = self.number(text, r"\bmetrics\s*\{[^}]*listen: \"0\.0\.0\.0:(\d+)\"")
        self.drain_seconds = (self.number(text, r"drain_ms: (\d+)") or 30000) / 1000
        self.peers = re.findall(r"\b(?:verifiers?|drafters?): \"([^\"/]+:\d+)\"", text)
        self.paths = re.findall(r"\"(/[^\"]*)\"", text)

    @staticmethod
    def number(text, pattern):
        found = re.search(pattern, text)
        return int(found.group(1)) if found else None


def configs(root):
    return {name: Config(root, name) for name in PROGRAMS}


def grpc_service(name):
    return f"arborist.v1.{name.capitalize()}Service"


def help_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def flag_complaints(where, command):
    """Flags that a program of ours does not have."""
    program, words = command[0], command[1:]
    if not os.access(os.path.join(BIN, program), os.X_OK):
        return [f"{where}: no program {program}"]
    verbs = [word for word in words[:1] if not word.startswith("-")]
    known = re.findall(r"^  (--[a-z-]+)", help_of([os.path.join(BIN, program), *verbs, "--help"]), re.MULTILINE)
    return [f"{where}: {program} has no {word}" for word in words if word.startswith("--") and word.split("=")[0] not in known]


def config_complaints(root):
    """Each is one that its process takes (it ends with 2 for a bad one, with 1 where the model is not at the image's path), names
    what is in the image, and listens."""
    out, started = [], []
    for name, config in configs(root).items():
        where = f"{name}.textproto"
        out += [f"{where}: {what} is not listened on" for what in ("port", "metrics_port") if getattr(config, what) is None]
        for path in config.paths:
            inside = path.replace(IMAGE_ROOT, os.path.join(root, "deploy"), 1)
            if not path.startswith(IMAGE_ROOT + "/") or not os.path.isdir(inside):
                out.append(f"{where}: {path} is not in the image")
        command = [os.path.join(BIN, PROGRAMS[name]), "--config", os.path.join(root, BASE, "config", where),
                   "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        for flag in {"verifier": ["--model"], "drafter": ["--target", "--model"], "coordinator": ["--tokenizer"]}[name]:
            command += [flag, "/nonexistent"]
        started.append((where, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                                text=True)))
    for where, process in started:
        said = process.communicate(timeout=60)[1]
        if process.returncode != 1 or "/nonexistent" not in said:
            out.append(f"{where}: its process ends with {process.returncode}: {said.strip()}")
    return out


def peer_complaints(where, ports, configs_of):
    """`ports` by the name under which a process is found there."""
    out = []
    for name, config in configs_of.items():
        for peer in config.peers:
            host, port = peer.rsplit(":", 1)
            if ports.get(host) != int(port):
                out.append(f"{where}: {name}.textproto asks {peer}, where nobody listens")
    return out


def seconds(text):
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", str(text))
    return int(found.group(1) or 0) * 60 + int(found.group(2) or 0)


def compose_complaints(root):
    board = documents(root, COMPOSE)[0]
    services, out, known = board["services"], [], configs(root)
    for name, service in services.items():
        where = f"compose.yaml: {name}"
        mounted = mounts(root, service, board, where, out)
        if ":" not in service["image"] or service["image"].endswith(":latest"):
            out.append(f"{where}: {service['image']} is any version")
        for other, wait in service.get("depends_on", {}).items():
            if other not in services:
                out.append(f"{where}: depends on {other}, which is not there")
            elif wait["condition"] == "service_healthy" and "healthcheck" not in services[other]:
                out.append(f"{where}: waits for the health of {other}, which has no check")
        health = service["healthcheck"]["test"]
        listens = known[name].port if name in known else Config.number(health[-1], r"://127\.0\.0\.1:(\d+)/")
        for published in service.get("ports", []):
            if not published.startswith("127.0.0.1:"):
                out.append(f"{where}: {published} is open to the network")
            if int(published.split(":")[-1]) != listens:
                out.append(f"{where}: publishes {published} but listens on {listens}")
        if name in known:
            out += process_complaints(root, where, name, service, mounted, known[name])
    out += [f"compose.yaml: no {name}" for name in (*PROGRAMS, "prometheus", "grafana") if name not in services]
    return out + peer_complaints("compose.yaml", {name: known[name].port for name in services if name in known}, known)


def mounts(root, service, board, where, out):
    """What lies where in the container, of bind mounts; complains of sources that are not there."""
    found = {}
    for volume in service.get("volumes", []):
        source, target = volume.split(":")[:2]
        if source.startswith("."):
            found[target] = os.path.join(root, "deploy", source)
            if not os.path.exists(found[target]):
                out.append(f"{where}: {source} is not there")
        elif source not in (board.get("volumes") or {}):
            out.append(f"{where}: no volume {source}")
    return found


def inside(mounted, path):
    """The file here that a container sees at `path`, or None."""
    for target, source in mounted.items():
        if path == target or path.startswith(target + "/"):
            return source + path[len(target):]
    return None


def process_complaints(root, where, name, service, mounted, config):
    out = []
    build = service["build"]
    context = os.path.join(root, "deploy", build["context"])
    if not os.path.isfile(os.path.join(context, build["dockerfile"])):
        out.append(f"{where}: no {build['dockerfile']} in {build['context']}")
    out += command_complaints(where, name, service["command"], mounted)
    health = service["healthcheck"]["test"]
    expected = ["CMD", "arborist", "health", "--address", f"127.0.0.1:{config.port}", "--service", grpc_service(name)]
    if health != expected:
        out.append(f"{where}: the health check is {health}, expected {expected}")
    out += flag_complaints(where, health[1:])
    if seconds(service["stop_grace_period"]) < config.drain_seconds + 10:
        out.append(f"{where}: stop_grace_period {service['stop_grace_period']} ends before {config.drain_seconds} s of draining")
    return out


def command_complaints(where, name, command, mounted):
    out = []
    if command[0] != PROGRAMS[name]:
        out.append(f"{where}: runs {command[0]}")
    out += flag_complaints(where, command)
    path = command[command.index("--config") + 1]
    file = inside(mounted, path)
    if not file or not os.path.isfile(file) or not path.endswith(f"/{name}.textproto"):
        out.append(f"{where}: no {path} in the container")
    return out


def monitoring_complaints(root):
    """The scrape config and Grafana's files, against compose.yaml."""
    board, out, known = documents(root, COMPOSE)[0], [], configs(root)
    services = board["services"]
    scrape = documents(root, "deploy/prometheus/prometheus.yml")[0]
    targets = [target for job in scrape["scrape_configs"] for group in job["static_configs"] for target in group["targets"]]
    expected = sorted(f"{name}:{config.metrics_port}" for name, config in known.items())
    if sorted(targets) != expected:
        out.append(f"prometheus.yml: scrapes {sorted(targets)}, expected {expected}")
    mounted = mounts(root, services["prometheus"], board, "prometheus", [])
    words = dict(word.split("=", 1) for word in services["prometheus"]["command"])
    if not os.path.isfile(inside(mounted, words["--config.file"]) or ""):
        out.append(f"compose.yaml: prometheus: no {words['--config.file']} in the container")

    mounted = mounts(root, services["grafana"], board, "grafana", [])
    source = documents(root, "deploy/grafana/provisioning/datasources/prometheus.yaml")[0]["datasources"][0]
    port = services["prometheus"]["ports"][0].split(":")[-1]
    if source["url"] != f"http://prometheus:{port}":
        out.append(f"datasources/prometheus.yaml: {source['url']}, where nobody listens")
    if source["jsonData"]["timeInterval"] != scrape["global"]["scrape_interval"]:
        out.append("datasources/prometheus.yaml: timeInterval is not prometheus.yml's scrape_interval")
    provider = documents(root, "deploy/grafana/provisioning/dashboards/arborist.yaml")[0]["providers"][0]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    for path in (provider["options"]["path"], home, "/etc/grafana/provisioning/datasources", "/etc/grafana/provisioning/dashboards"):
        if not os.path.exists(inside(mounted, path) or ""):
            out.append(f"compose.yaml: grafana: no {path} in the container")
    return out + dashboard_complaints(root, source["uid"])


def dashboard_complaints(root, uid):
    board, out = json.loads(read(root, "deploy/grafana/dashboards/arborist.json")), []
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    if variables["datasource"]["current"]["value"] != uid:
        out.append(f"arborist.json: the data source is not {uid}")
    panels = board["panels"]
    if len({panel["id"] for panel in panels}) != len(panels):
        out.append("arborist.json: two panels have one id")
    places = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if cells & places or place["x"] + place["w"] > 24:
            out.append(f"arborist.json: {panel['title']} lies on another panel or off the board")
        places |= cells
        if panel["type"] != "row" and panel["datasource"]["uid"] != "${datasource}":
            out.append(f"arborist.json: {panel['title']} has a data source of its own")
        for target in panel.get("targets", []):
            out += [f"arborist.json: {panel['title']}: rate over a fixed time in {target['expr']}"
                    for window in re.findall(r"(?<=[\w}])\[(.*?)\]", target["expr"]) if window != "$__rate_interval"]
    return out
