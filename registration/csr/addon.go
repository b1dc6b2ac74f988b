package csr

import (
	"crypto/x509/pkix"
	"fmt"
	"reflect"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// addOnTarget returns the target of one item of an add-on.
func addOnTarget(in registration.Input) (target, error) {
	if err := registration.CheckAddOnName(in.Addon); err != nil {
		return target{}, err
	}
	item := in.Item
	t := target{
		prefix:   "addon-" + in.Cluster + "-" + in.Addon + "-",
		labels:   map[string]string{ocm.ClusterNameLabel: in.Cluster, addon.NameLabel: in.Addon},
		approval: "Run an approver for the signer on the hub.",
	}
	// The token driver has left such a user.
	if item.Subject.User == "" || strings.HasPrefix(item.Subject.User, "system:serviceaccount:") {
		item.Subject = registration.AddOnSubject(in.Cluster, in.Addon, in.Agent)
	}
	switch {
	case item.Type == ocm.KubeClient:
		item.Driver, t.signer = registration.AuthTypeCSR, certificatesv1.KubeAPIServerClientSignerName
		if !reflect.DeepEqual(item, in.Item) {
			t.declare = &item
		}
	case item.Type == ocm.CustomSigner && item.SignerName != "":
		t.signer = item.SignerName
	default:
		return target{},
			fmt.Errorf(
				"the add-on %q has an item of type %.50q with the signer %.50q: the csr driver needs a kubeClient item, or a customSigner item with a signer",
				in.Addon, item.Type, item.SignerName)
	}
	t.subject = addOnName(item.Subject)
	return t, nil
}

func addOnName(s ocm.Subject) pkix.Name {
	return pkix.Name{CommonName: s.User, Organization: s.Groups, OrganizationalUnit: s.OrganizationUnits}
}
