#!/bin/sh
# Looks at everything in deploy/ that can't run in a test: there is no Docker, no
# Kubernetes and no systemd that runs as a machine's first process.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
helm=helm.sh/helm/v3/cmd/helm@v3.22.0
kubernetes=1.33.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # which ends with the line above

echo "systemd"
# The program is where make build puts it, not where the package does.
sed "s|^ExecStart=/usr/bin/|ExecStart=$PWD/bin/|" deploy/systemd/fenceproxy.service >"$work/fenceproxy.service"
cp deploy/systemd/fenceproxy.socket "$work"
systemd-analyze verify "$work/fenceproxy.service" "$work/fenceproxy.socket"
# Exposure in tenths, of 100; a unit without hardening has 96.
systemd-analyze security --no-pager --offline=yes --threshold=15 "$work/fenceproxy.service" | tail -n 1

echo "Docker"
(cd deploy/check && $GO build -o "$work/check" .)
"$work/check" dockerfile deploy/Dockerfile
# What the program is made of is not left out.
grep '^[a-z]*$' deploy/Dockerfile.dockerignore | while read -r left; do
	if $GO list -deps ./cmd/fenceproxy | grep "^$($GO list -m)/$left/"; then
		echo "deploy/Dockerfile.dockerignore leaves out $left, which the program is made of" >&2
		exit 1
	fi
done
sed 's/=$/=x/' deploy/compose/example.env >"$work/env"
"$work/check" compose deploy/compose.yaml "$work/env"

FENCEPROXY_UPSTREAM='host=postgres dbname=app user=fence' FENCEPROXY_ETCD=http://etcd:2379 FENCEPROXY_INSECURE_LISTEN=true \
	bin/fenceproxy serve --check-config --config deploy/docker/fenceproxy.yaml >/dev/null

echo "Helm, Kubernetes $kubernetes"
GOBIN=$work $GO install $helm
# A link to a chart is followed, and said to be.
"$work/helm" lint --quiet --strict deploy/helm/fenceproxy -f deploy/helm/check-values.yaml
"$work/helm" lint --quiet --strict deploy/helm/sidecar 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
# Names that YAML takes for numbers are names all the same.
"$work/helm" template 12e3 deploy/helm/fenceproxy --namespace 0x1 --kube-version $kubernetes -f deploy/helm/check-values.yaml >"$work/all.yaml"
"$work/helm" template fenceproxy deploy/helm/fenceproxy --kube-version $kubernetes --set upstream.secretName=upstream --set tls.insecureListen=true >"$work/least.yaml"
if "$work/helm" template fenceproxy deploy/helm/fenceproxy --kube-version $kubernetes --set upstream.secretName=upstream >"$work/log" 2>&1; then
	echo "a chart that says nothing of TLS was made" >&2
	exit 1
fi
"$work/helm" template 12e3 deploy/helm/sidecar --namespace 0x1 --kube-version $kubernetes >"$work/sidecar.yaml" 2>"$work/log" ||
	{ cat "$work/log" >&2; exit 1; }
# With etcd away a Service without proxies would keep everybody out.
grep -q 'path: "/readyz?exclude=etcd"' "$work/least.yaml" || { echo "the chart has proxies taken out of use while etcd is away" >&2; exit 1; }
for objects in all least sidecar; do
	"$work/check" kubernetes "$work/$objects.yaml"
done

echo "Prometheus"
# With a token where there is one.
cp -r deploy/prometheus "$work/prometheus"
sed -i "s|/run/secrets/admin-token|$work/env|" "$work/prometheus/prometheus.yml"
promtool check config --lint=all --lint-fatal "$work/prometheus/prometheus.yml"
promtool test rules deploy/prometheus/tests/*.yml
