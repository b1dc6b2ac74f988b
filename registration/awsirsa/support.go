package awsirsa

import (
	"errors"
	"fmt"
	"slices"

	"github.com/workloadid/workloadid/registration"
)

// Hub describes a hub for CheckHub.
type Hub struct {
	// AuthTypes are the hub's drivers.
	AuthTypes []string
	// OnEKS reports that Amazon EKS runs the hub.
	OnEKS bool
	// TokenWebhook reports an authentication webhook for AWS tokens in its API server, such as aws-iam-authenticator.
	TokenWebhook bool
	// Binding is HubDriverOptions.Binding.
	Binding Binding
}

func isAWS(authType string) bool {
	return authType == registration.ProposedNames.AuthTypeAWS() || authType == registration.OCMNames.AuthTypeAWS()
}

// CheckHub refuses auth types that the hub cannot serve, and explains why. aws-irsa alone needs EKS. csr needs a hub outside EKS.
// Both together need a hub outside EKS with a token webhook and the binding aws-auth.
func CheckHub(h Hub) error {
	csr, irsa := slices.Contains(h.AuthTypes, registration.AuthTypeCSR), slices.ContainsFunc(h.AuthTypes, isAWS)
	switch {
	case csr && h.OnEKS:
		return fmt.Errorf("the auth type %q needs a hub that signs client certificates, and EKS signs none: use %q alone, or another hub",
			registration.AuthTypeCSR, registration.ProposedNames.AuthTypeAWS())
	case !irsa:
		return nil
	case h.OnEKS:
		return nil
	case !csr:
		return fmt.Errorf("the auth type %q alone needs a hub on EKS, which checks tokens of AWS itself: on other hubs use it together with %q",
			registration.ProposedNames.AuthTypeAWS(), registration.AuthTypeCSR)
	case !h.TokenWebhook:
		return errors.New("a hub that is not EKS cannot check tokens of AWS: give its API server an authentication webhook, such as aws-iam-authenticator, or leave aws-irsa out")
	case h.Binding != AWSAuth:
		return errors.New("a hub that is not EKS has no access entries: use the binding aws-auth, which aws-iam-authenticator reads")
	}
	return nil
}

// CheckManaged refuses a managed cluster for which the auth type does not work, and explains why.
func CheckManaged(authType string, onEKS bool) error {
	if isAWS(authType) && !onEKS {
		return fmt.Errorf("the auth type %q needs a managed cluster on EKS, since its ARN names it and IAM trusts its ServiceAccounts: use %q here",
			authType, registration.AuthTypeCSR)
	}
	return nil
}
