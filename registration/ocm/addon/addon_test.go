package addon_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// status is what both versions have.
type status interface {
	Items() []ocm.Registration
	SetItems([]ocm.Registration)
}

// Both versions read as the same items, and are written as they were read.
func TestItemsOfBothVersions(t *testing.T) {
	items := []ocm.Registration{
		{Type: ocm.KubeClient, Driver: ocm.DriverToken, Subject: ocm.Subject{User: "system:serviceaccount:cluster1:a"}},
		{Type: ocm.CustomSigner, SignerName: "example.com/signer", Subject: ocm.Subject{User: "u", Groups: []string{"g"}, OrganizationUnits: []string{"o"}}},
	}
	for version, tc := range map[string]struct {
		status, again status
		wire          string
	}{
		"v1alpha1": {&v1alpha1.ManagedClusterAddOnStatus{}, &v1alpha1.ManagedClusterAddOnStatus{},
			`{"registrations":[{"signerName":"kubernetes.io/kube-apiserver-client","subject":{"user":"system:serviceaccount:cluster1:a"}},` +
				`{"signerName":"example.com/signer","subject":{"user":"u","groups":["g"],"organizationUnit":["o"]}}],"kubeClientDriver":"token"}`},
		"v1beta1": {&addon.ManagedClusterAddOnStatus{}, &addon.ManagedClusterAddOnStatus{},
			`{"registrations":[{"type":"kubeClient","kubeClient":{"driver":"token","subject":{"user":"system:serviceaccount:cluster1:a"}}},` +
				`{"type":"customSigner","customSigner":{"signerName":"example.com/signer","subject":{"user":"u","groups":["g"],"organizationUnits":["o"]}}}]}`},
	} {
		t.Run(version, func(t *testing.T) {
			if err := json.Unmarshal([]byte(tc.wire), tc.status); err != nil {
				t.Fatal(err)
			}
			if got := tc.status.Items(); !reflect.DeepEqual(got, items) {
				t.Errorf("items %+v", got)
			}
			tc.again.SetItems(items)
			if got, err := json.Marshal(tc.again); err != nil || string(got) != tc.wire {
				t.Errorf("written as %s, %v", got, err)
			}
		})
	}
}
