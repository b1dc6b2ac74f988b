package main

import (
	"testing"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// What is pasted asks and changes the cluster that was examined, not the one that kubectl happens to be set to.
func TestRemediesNameTheCluster(t *testing.T) {
	const flags = " --kubeconfig 'a b/prod.yaml' --context admin@prod"
	for _, tc := range []struct {
		number       int
		remedy, want string
	}{
		{10, "publish this:\nkubectl get --raw /openid/v1/jwks", "publish this:\nkubectl" + flags + " get --raw /openid/v1/jwks"},
		{16, "kubectl create role x\nkubectl create rolebinding y", "in the cluster that" + flags + " leads to, as somebody who may:\nkubectl create role x\nkubectl create rolebinding y"},
		{13, "see: kubectl get --raw /version", "see: kubectl" + flags + " get --raw /version"},
		{13, "kubectl get --raw /version", "kubectl" + flags + " get --raw /version"},
		{15, "kubectl logs a 'kubectl get --raw /x'", "kubectl" + flags + " logs a 'kubectl get --raw /x'"},
		{24, "kubectl -n kube-system get configmap aws-auth", "kubectl -n kube-system get configmap aws-auth"},
		{20, "kubectlx", "kubectlx"},
	} {
		d := &doctorFlags{id: &identity{kubeconfig: "a b/prod.yaml", kubeContext: "admin@prod"}}
		f := &doctor.Finding{Number: tc.number, Remedy: tc.remedy}
		if d.inTermsOfFlags(f); f.Remedy != tc.want {
			t.Errorf("%d, %q: %q", tc.number, tc.remedy, f.Remedy)
		}
		d = &doctorFlags{id: &identity{}}
		f = &doctor.Finding{Number: tc.number, Remedy: tc.remedy}
		if d.inTermsOfFlags(f); f.Remedy != tc.remedy {
			t.Errorf("%d, %q: %q", tc.number, tc.remedy, f.Remedy)
		}
	}
	// What no shell takes for a word is for the reader to fill in.
	d := &doctorFlags{id: &identity{kubeconfig: "-x", kubeContext: "a\nb"}}
	f := &doctor.Finding{Number: 13, Remedy: "kubectl get --raw /version"}
	if d.inTermsOfFlags(f); f.Remedy != "kubectl --kubeconfig KUBECONFIG --context CONTEXT get --raw /version" {
		t.Errorf("%q", f.Remedy)
	}
}
