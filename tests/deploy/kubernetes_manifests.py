"""The Kubernetes base, held together: names, labels, ports, probes, configs and the time to drain. What schemas can say stands in
tests/check_deployment.sh. Each function returns complaints, none where all is well."""
import os

from manifests import BASE, PROGRAMS, command_complaints, configs, documents, grpc_service, peer_complaints

USER = 65532  # of the image


def kubernetes_complaints(root):
    kustomization = documents(root, f"{BASE}/kustomization.yaml")[0]
    out = kustomization_complaints(root, kustomization)
    objects = [each for path in kustomization["resources"] if os.path.isfile(os.path.join(root, BASE, path))
               for each in documents(root, f"{BASE}/{path}")]
    known = configs(root)
    deployments = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Deployment"}
    services = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Service"}
    if kustomization["namespace"] not in [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"]:
        out.append(f"kustomization.yaml: no namespace {kustomization['namespace']}")
    for kind, found in (("Deployment", deployments), ("Service", services)):
        if sorted(found) != sorted(PROGRAMS):
            out.append(f"base: a {kind} each of {sorted(PROGRAMS)} expected, found {sorted(found)}")
    generated = {each["name"]: each["files"] for each in kustomization["configMapGenerator"]}
    images = [each["name"] for each in kustomization["images"]]
    for name in sorted(set(PROGRAMS) & set(deployments)):
        out += deployment_complaints(root, name, deployments[name], known[name], generated, images)
    for name, service in services.items():
        out += service_complaints(name, service, deployments, known)
    ports = {name: service["spec"]["ports"][0]["port"] for name, service in services.items()}
    return out + peer_complaints("base", ports, known)


def kustomization_complaints(root, kustomization):
    out = []
    named = [*kustomization["resources"], *(file for each in kustomization["configMapGenerator"] for file in each["files"])]
    out += [f"kustomization.yaml: {path} is not there" for path in named if not os.path.isfile(os.path.join(root, BASE, path))]
    for folder, _, files in os.walk(os.path.join(root, BASE)):
        for file in files:
            path = os.path.relpath(os.path.join(folder, file), os.path.join(root, BASE))
            if path != "kustomization.yaml" and path not in named:
                out.append(f"kustomization.yaml: does not name {path}")
    return out


def deployment_complaints(root, name, deployment, config, generated, images):
    where, out = f"{name}.yaml", []
    template = deployment["spec"]["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    if not selector.items() <= labels.items():
        out.append(f"{where}: selects {selector}, which its pods are not")
    container = pod["containers"][0]
    if container["image"] not in images:
        out.append(f"{where}: kustomization.yaml does not know the image {container['image']}")

    mounted = {}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        files = generated.get(volumes.get(mount["name"], {}).get("configMap", {}).get("name"))
        if not files:
            out.append(f"{where}: nothing to mount at {mount['mountPath']}")
        for file in files or []:
            mounted[f"{mount['mountPath']}/{os.path.basename(file)}"] = os.path.join(root, BASE, file)
    out += command_complaints(where, name, container["command"], mounted)

    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    if ports != {"grpc": config.port, "metrics": config.metrics_port}:
        out.append(f"{where}: ports {ports}, but {name}.textproto listens on {config.port} and {config.metrics_port}")
    annotations = template["metadata"]["annotations"]
    scraped = {key: annotations.get(f"prometheus.io/{key}") for key in ("scrape", "port", "path")}
    if scraped != {"scrape": "true", "port": str(config.metrics_port), "path": "/metrics"}:
        out.append(f"{where}: Prometheus is told {scraped}")
    return out + probe_complaints(where, name, container, config) + end_complaints(where, pod, config) + rights_complaints(where, pod)


def probe_complaints(where, name, container, config):
    """Ready is the named service, alive the process; a slow start is not a death."""
    out = []
    for probe, service in (("startupProbe", grpc_service(name)), ("readinessProbe", grpc_service(name)), ("livenessProbe", "")):
        asked = container[probe].get("grpc", {})
        if (asked.get("port"), asked.get("service", "")) != (config.port, service):
            out.append(f"{where}: {probe} asks {asked}, expected port {config.port}, service '{service}'")
    startup = container["startupProbe"]
    if startup["periodSeconds"] * startup["failureThreshold"] < 1800:
        out.append(f"{where}: half an hour for a large model expected")
    return out


def end_complaints(where, pod, config):
    before = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    if pod["terminationGracePeriodSeconds"] < before + config.drain_seconds + 10:
        return [f"{where}: killed after {pod['terminationGracePeriodSeconds']} s, while it drains"]
    return []


def rights_complaints(where, pod):
    out = []
    context, own = pod["securityContext"], pod["containers"][0]["securityContext"]
    if not context.get("runAsNonRoot") or context.get("runAsUser") != USER:
        out.append(f"{where}: runs as {context.get('runAsUser')}, expected {USER}, the image's")
    if not own.get("readOnlyRootFilesystem") or own.get("allowPrivilegeEscalation") is not False:
        out.append(f"{where}: may write to its image or gain rights")
    if own.get("capabilities") != {"drop": ["ALL"]} or context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        out.append(f"{where}: has capabilities or no seccomp profile")
    return out


def service_complaints(name, service, deployments, known):
    out, spec = [], service["spec"]
    chosen = [each for each, deployment in deployments.items()
              if spec["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()]
    if chosen != [name]:
        out.append(f"{name}.yaml: the service selects the pods of {chosen}")
    for port in spec["ports"]:
        containers = deployments[name]["spec"]["template"]["spec"]["containers"] if name in deployments else []
        named = [each["name"] for container in containers for each in container["ports"]]
        # A headless service is only names: its port is the pod's.
        if port["targetPort"] not in named or (name in known and port["port"] != known[name].port):
            out.append(f"{name}.yaml: the service leads from {port['port']} to {port['targetPort']}")
    if name == "coordinator" and spec.get("clusterIP") != "None":
        out.append("coordinator.yaml: with a cluster IP a client stays with one replica")
    return out
