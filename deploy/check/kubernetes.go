package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// manifests are the objects of one file, as helm template prints them.
type manifests struct {
	path    string
	pods    []pod
	objects []runtime.Object
}

// A pod is what a Deployment or a Job makes.
type pod struct {
	of       string
	template corev1.PodTemplateSpec
}

// kubernetes reads objects as strictly as an API server does (no unknown fields,
// no wrong types), and looks at what no schema knows: that selectors find pods,
// and that ours keep to the Pod Security Standard "restricted".
func kubernetes(path string, stdout io.Writer) error {
	m := &manifests{path: path}
	if err := m.read(); err != nil {
		return err
	}
	if err := errors.Join(append(m.selectors(), m.security()...)...); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Fprintf(stdout, "%s: %d objects\n", path, len(m.objects))
	return nil
}

func (m *manifests) read() error {
	text, err := os.ReadFile(m.path)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", m.path, err)
		case len(bytes.TrimSpace(doc)) == 0:
			continue
		}
		object, kind, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			return fmt.Errorf("%s: %w in\n%s", m.path, err, doc)
		}
		m.objects = append(m.objects, object)
		switch o := object.(type) {
		case *appsv1.Deployment:
			m.pods = append(m.pods, pod{kind.Kind + " " + o.Name, o.Spec.Template})
		case *batchv1.Job:
			m.pods = append(m.pods, pod{kind.Kind + " " + o.Name, o.Spec.Template})
		}
	}
}

// selectors returns a fault for each that finds no pod, or none of the ports it
// means, and nil for others.
func (m *manifests) selectors() (wrong []error) {
	for _, object := range m.objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			wrong = append(wrong, m.find("Deployment "+o.Name, o.Spec.Selector))
		case *policyv1.PodDisruptionBudget:
			wrong = append(wrong, m.find("PodDisruptionBudget "+o.Name, o.Spec.Selector))
		case *corev1.Service:
			what := "Service " + o.Name
			wrong = append(wrong, m.find(what, &metav1.LabelSelector{MatchLabels: o.Spec.Selector}))
			for _, port := range o.Spec.Ports {
				if !m.hasPort(port.TargetPort.String()) {
					wrong = append(wrong, fmt.Errorf("%s: no container has a port %s", what, port.TargetPort.String()))
				}
			}
		case *monitoring.ServiceMonitor:
			wrong = append(wrong, m.monitored(o))
		}
	}
	return wrong
}

func (m *manifests) find(what string, selector *metav1.LabelSelector) error {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, p := range m.pods {
		if s.Matches(labels.Set(p.template.Labels)) {
			return nil
		}
	}
	return fmt.Errorf("%s selects no pod: %s", what, s)
}

func (m *manifests) hasPort(name string) bool {
	for _, p := range m.pods {
		for _, container := range append(p.template.Spec.InitContainers, p.template.Spec.Containers...) {
			for _, port := range container.Ports {
				if port.Name == name {
					return true
				}
			}
		}
	}
	return false
}

// monitored looks for the Service and the port that a ServiceMonitor names.
func (m *manifests) monitored(monitor *monitoring.ServiceMonitor) error {
	s, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil {
		return err
	}
	for _, object := range m.objects {
		service, ok := object.(*corev1.Service)
		if !ok || !s.Matches(labels.Set(service.Labels)) {
			continue
		}
		for _, port := range service.Spec.Ports {
			if port.Name == monitor.Spec.Endpoints[0].Port {
				return nil
			}
		}
	}
	return fmt.Errorf("ServiceMonitor %s finds no Service with its port", monitor.Name)
}

// security holds pods of ours to the strictest standard, which a namespace may
// enforce. An application's own container is its own affair.
func (m *manifests) security() (wrong []error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return []error{err}
	}
	restricted := psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}
	for _, p := range m.pods {
		spec := p.template.Spec.DeepCopy()
		spec.InitContainers, spec.Containers = ours(spec.InitContainers), ours(spec.Containers)
		for _, result := range evaluator.EvaluatePod(restricted, &p.template.ObjectMeta, spec) {
			if !result.Allowed {
				wrong = append(wrong, fmt.Errorf("%s: %s: %s", p.of, result.ForbiddenReason, result.ForbiddenDetail))
			}
		}
	}
	return wrong
}

func ours(containers []corev1.Container) (own []corev1.Container) {
	for _, container := range containers {
		if container.Name != "app" {
			own = append(own, container)
		}
	}
	return own
}
