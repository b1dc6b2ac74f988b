package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// runsOnWindows reports whether the pod states that it runs on Windows, or that
// it cannot run on Linux.
func (p *pod) runsOnWindows() bool {
	spec := &p.Spec
	if slices.Contains([]corev1.OSName{spec.OS.Name, spec.NodeSelector.OS, spec.NodeSelector.OldOS}, corev1.Windows) {
		return true
	}
	terms := spec.Affinity.NodeAffinity.Required.Terms
	return len(terms) > 0 && !slices.ContainsFunc(terms, nodeTerm.allowsLinux) // one term suffices
}

// allowsLinux reports whether a Linux node may fulfil the term.
func (t nodeTerm) allowsLinux() bool {
	for _, e := range t.Expressions {
		if e.Key != corev1.LabelOSStable && e.Key != "beta.kubernetes.io/os" {
			continue
		}
		linux := slices.Contains(e.Values, string(corev1.Linux))
		if e.Operator == corev1.NodeSelectorOpIn && !linux || e.Operator == corev1.NodeSelectorOpNotIn && linux {
			return false
		}
	}
	return true
}
