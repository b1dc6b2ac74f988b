package registration

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/hub"
)

// driver returns the auth type in the Klusterlet or in the hub's record.
func (e *examination) driver() string {
	if e.klusterlet != nil {
		return cmp.Or(e.klusterlet.Spec.RegistrationConfiguration.RegistrationDriver.AuthType, e.authType)
	}
	return e.authType
}

// usesCertificates reports whether the agent's credential is a certificate.
func (e *examination) usesCertificates() bool {
	return !e.usesIAM() && cmp.Or(e.driver(), registration.AuthTypeCSR) == registration.AuthTypeCSR
}

// usesIAM reports whether the cluster registers with an AWS role.
func (e *examination) usesIAM() bool {
	switch e.driver() {
	case registration.AuthTypeAWS, "awsirsa":
		return true
	}
	if e.cluster == nil {
		return false
	}
	_, claims, err := awsirsa.Claim(e.cluster)
	return claims || err != nil
}

// checkClaim compares what the cluster, its Klusterlet and the hub say of one another. The hub's conditions judge the rest.
func (e *examination) checkClaim(context.Context) doctor.Finding {
	if !e.usesIAM() {
		return doctor.Skipped("The cluster does not register with an AWS role.")
	}
	configured := ""
	if e.klusterlet != nil {
		configured = e.klusterlet.Spec.RegistrationConfiguration.RegistrationDriver.AWSIRSA.HubClusterARN
	}
	e.hubARN = cmp.Or(e.HubClusterARN, configured)
	has := e.cluster.Annotations
	suffix := has[awsirsa.OCMSuffixAnnotation]
	claim, _, err := awsirsa.Claim(e.cluster)
	e.claim = claim
	switch {
	case has[awsirsa.ARNAnnotation] == "" && (has[awsirsa.OCMARNAnnotation] == "" || suffix == ""):
		return e.fault("AnnotationsMissing", "The ManagedCluster lacks an annotation of its AWS role, so the hub makes none.")
	case err != nil:
		return said(e.fault("InvalidClaim", "The cluster claims no valid ARN."), "", err.Error())
	case configured != "" && configured != e.hubARN:
		return e.fault("InvalidClaim", "The cluster joins with the ARN of another hub.").Compare("Klusterlet", configured, "hub", e.hubARN)
	}
	hub, err := awsirsa.ParseClusterARN(e.hubARN)
	managed, _ := awsirsa.ParseClusterARN(claim) //nolint:errcheck // Claim did
	if id := awsirsa.ID(hub, managed); err == nil && suffix != "" && suffix != id {
		return e.fault("InvalidClaim", "The role's suffix belongs to another hub or cluster.").Compare("suffix", suffix, "expected", id)
	}
	return doctor.Passed("The cluster claims %s.", claim)
}

// checkRole goes by the word of the agent, which tries its role.
func (e *examination) checkRole(context.Context) doctor.Finding {
	c := e.condition(awsirsa.ConditionReady)
	switch {
	case !e.usesIAM():
		return doctor.Skipped("The cluster does not register with an AWS role.")
	case c.Status == metav1.ConditionFalse && c.Reason != hub.ReasonWaiting:
		return e.refused(object{}, c, "RoleRefused", "The agent cannot use the role that the hub has made for it.")
	case c.Status != metav1.ConditionTrue:
		return doctor.Skipped("The agent does not report whether its role works.")
	}
	return doctor.Passed("The agent can use its role.")
}
