package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

const arnForm = "arn:<partition>:eks:<region>:<account>:cluster/<name>"

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

func describeCluster(text string) doctor.Remedy {
	return doctor.Do(text, "aws eks describe-cluster --name CLUSTER_NAME --query cluster.arn")
}

func (e *examination) checkClaim(ctx context.Context) doctor.Finding {
	if !e.usesIAM() {
		return doctor.Skipped("The cluster does not register with an AWS role.")
	}
	said := ""
	if e.klusterlet != nil {
		said = e.klusterlet.Spec.RegistrationConfiguration.RegistrationDriver.AWSIRSA.HubClusterARN
	}
	e.hubARN = cmp.Or(e.HubClusterARN, said)
	has := e.cluster.Annotations
	own, released, suffix := has[awsirsa.ARNAnnotation], has[awsirsa.OCMARNAnnotation], has[awsirsa.OCMSuffixAnnotation]
	claim, _, err := awsirsa.Claim(e.cluster)
	switch {
	case own == "" && (released == "" || suffix == ""):
		return doctor.Failed("O30", doctor.Do("Join again with the auth type awsirsa and the ARNs of both clusters."),
			"The ManagedCluster lacks an annotation of its AWS role, so the hub makes none.").
			Compare("annotations", strings.TrimSpace(cmp.Or(released+" "+suffix, "none")), "expected", "the cluster's ARN, and the suffix of its role")
	case own != "" && released != "" && own != released:
		return doctor.Failed("O31", doctor.Do("Remove the wrong annotation:", "kubectl annotate managedcluster "+e.name()+" ANNOTATION-"), "The cluster claims two ARNs.").
			Compare(awsirsa.ARNAnnotation, own, awsirsa.OCMARNAnnotation, released)
	case err != nil:
		return doctor.Failed("O31", describeCluster("Correct the annotation of the ManagedCluster; this prints the ARN:"), "The ARN that the cluster claims is malformed.").
			Compare("claim", cmp.Or(own, released), "form", arnForm)
	case said != "" && said != e.hubARN:
		return doctor.Failed("O32", doctor.Do("Correct awsIrsa.hubClusterArn in the Klusterlet, and join again:", "kubectl edit klusterlet"),
			"The cluster joins with the ARN of another hub.").Compare("Klusterlet", said, "hub", e.hubARN)
	}
	if f, shared := e.sharedClaim(ctx, claim); shared {
		return f
	}
	if e.hubARN == "" {
		return doctor.Unclear(describeCluster("Add the hub's ARN:"), "The hub's own ARN is not known, so its role for the cluster is not known either.")
	}
	return e.judgeHub(claim, suffix)
}

// judgeHub takes a claim that is well formed.
func (e *examination) judgeHub(claim, suffix string) doctor.Finding {
	managed, _ := awsirsa.ParseClusterARN(claim)
	hub, err := awsirsa.ParseClusterARN(e.hubARN)
	if err != nil {
		return doctor.Failed("O31", describeCluster("Correct the hub's ARN:"), "The ARN of the hub is malformed.").Compare("hub", e.hubARN, "form", arnForm)
	}
	if id := awsirsa.ID(hub, managed); suffix != "" && suffix != id {
		return doctor.Failed("O32", doctor.Do("Join again with the ARNs of this hub and this cluster."), "The role's suffix is that of another hub or cluster.").
			Compare("suffix", suffix, "expected", id)
	}
	e.hubRole = awsirsa.HubRoleARN(hub, managed)
	return doctor.Passed("The cluster claims the role %s.", e.hubRole)
}

// sharedClaim finds a second ManagedCluster with the same claim. The hub gives access to only one of them.
func (e *examination) sharedClaim(ctx context.Context, claim string) (doctor.Finding, bool) {
	clusters, _, err := kube.List[ocm.ManagedCluster](ctx, e.Hub, ocm.GroupVersion.WithKind("ManagedCluster"))
	if err != nil {
		return doctor.Finding{}, false // the other checks do not need the right to list
	}
	i := slices.IndexFunc(clusters, func(c ocm.ManagedCluster) bool {
		return c.Name != e.ClusterName && (c.Annotations[awsirsa.ARNAnnotation] == claim || c.Annotations[awsirsa.OCMARNAnnotation] == claim)
	})
	if i < 0 {
		return doctor.Finding{}, false
	}
	return doctor.Failed("O35", doctor.Do("At the hub, delete the wrong one:", "kubectl delete managedcluster UNWANTED_CLUSTER"),
		"Two ManagedClusters claim the same cluster of EKS; only one gets access.").Compare("examined", e.ClusterName, "other", clusters[i].Name), true
}

// checkRole tries the role as the agent does.
func (e *examination) checkRole(ctx context.Context) doctor.Finding {
	if e.hubRole == "" {
		return doctor.Skipped("There is no role to try.")
	}
	role := shell.Word(e.hubRole, "ROLE_ARN")
	assume := doctor.Do("Try it as the cluster's agent:", "aws sts assume-role --role-session-name wid --role-arn "+role)
	refused := doctor.Failed("O33", assume, "The agent cannot assume the role that the hub has made for it.")
	refused.Causes = []string{"the agent's own role lacks one of the four tags that the trust policy wants", "the hub has not made the role",
		"the hub made it a moment ago: IAM takes a minute"}
	if c := e.condition(awsirsa.ConditionReady); c.Status == metav1.ConditionFalse && c.Reason == "RoleRefused" {
		return observed(refused, c, "True")
	}
	if e.AssumeRole == nil {
		return doctor.Unclear(assume, "The doctor did not try whether the agent can assume its role.").Detail("role", e.hubRole)
	}
	switch err := e.AssumeRole(ctx, e.hubRole); {
	case errors.Is(err, auth.ErrUnavailable), errors.Is(err, auth.ErrThrottled), errors.Is(err, context.DeadlineExceeded):
		return doctor.Refusal("AWS STS", err)
	case err != nil:
		return refused.Detail("error", fmt.Sprintf("%.500s", err))
	}
	return e.judgeEntry(ctx, role)
}

func (e *examination) judgeEntry(ctx context.Context, role string) doctor.Finding {
	hub, _ := awsirsa.ParseClusterARN(e.hubARN)
	unread := doctor.Unclear(doctor.Do("Read it in the hub's account:",
		fmt.Sprintf("aws eks describe-access-entry --region %s --cluster-name %s --principal-arn %s", hub.Region, hub.Name, role)),
		"The doctor did not read the role's access entry at the hub.")
	if e.DescribeAccessEntry == nil {
		return unread
	}
	groups, found, err := e.DescribeAccessEntry(ctx, e.hubARN, e.hubRole)
	want := registration.ClusterGroups(e.ClusterName)[1]
	again := doctor.Do("At the hub, deny the cluster and accept it again, so that the hub makes the entry anew:", "wid hub deny --clusters "+e.name(), "wid hub accept --clusters "+e.name())
	switch {
	case err != nil:
		return unread.Detail("error", fmt.Sprintf("%.500s", err))
	case !found:
		return doctor.Failed("O34", again, "The hub has no access entry for the role.").Compare("access entry", "none", "expected", e.hubRole)
	case !slices.Contains(groups, want):
		return doctor.Failed("O34", again, "The access entry of the role lacks the cluster's group.").Compare("groups", cmp.Or(strings.Join(groups, ", "), "none"), "expected", want)
	}
	return doctor.Passed("The agent can assume its role, and the hub admits it.")
}
