package awsirsa_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// A hub administrator prepares a hub on EKS: the IAM role of wid hub policies,
// the manifests, and this auth type alone.
func TestStoriesOnEKS(t *testing.T) {
	k := newKube(t, awsirsa.AccessEntries)
	defer k.finish()
	k.Step("stories 1, 3 and 4: a cluster joins", k.testJoin)
	k.Step("story 6: tokens renew themselves", k.testRenewal)
	k.Step("story 7: the hub revokes access", k.testRevocation)
	k.Step("story 8: clusters are isolated", k.testIsolation)
}

// The agent of a managed cluster announces its ARN, waits, and uses AWS IAM
// once it is accepted.
func (k *kube) testJoin(t *testing.T) {
	m := k.join("story4")
	m.pending()
	for range 5 {
		m.Reconcile()
	}
	role, entry := m.inAWS()
	if claim := k.Cluster("story4").Annotations[awsirsa.ARNAnnotation]; claim != m.arn.String() || role || entry {
		t.Errorf("before it is accepted the cluster claims %q, in AWS: role %t, access entry %t", claim, role, entry)
	}
	data := m.Secret().Data
	if data["kubeconfig"] != nil || string(data["cluster-name"]) != "story4" || len(data["agent-name"]) == 0 {
		t.Errorf("before it is accepted the Secret is of cluster %q and agent %q", data["cluster-name"], data["agent-name"])
	}
	m.accept()
	m.checkIdentity(t, registration.ClusterGroups("story4")[1])
	config, err := clientcmd.Load(m.Secret().Data["kubeconfig"])
	regtest.Must(t, err)
	for _, user := range config.AuthInfos {
		if user.Exec == nil || user.Exec.Command != "aws" || !slices.Contains(user.Exec.Args, m.hubRole) ||
			len(user.Token)+len(user.ClientKeyData) > 0 {
			t.Errorf("the kubeconfig has the user %v", user)
		}
	}
	before := m.Secret().ResourceVersion
	m.restart()
	for range 5 {
		m.until("the agent is content", func() bool { return m.Failed == nil })
	}
	if got := m.Secret().ResourceVersion; got != before {
		t.Error("the Secret was written although nothing has changed")
	}
	k.Step("no other auth type is the default", func(t *testing.T) {
		unannotated := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "story4-unannotated"},
			Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}}
		regtest.Must(t, k.Admin.Create(t.Context(), unannotated))
		kubetest.Eventually(t, "the hub refuses a cluster without annotations", func() bool {
			return k.Reason("story4-unannotated", ocm.ConditionHubAccepted) == "False/"+"UnknownDriver"
		})
	})
}

// A hub that is not on EKS serves csr and aws-irsa at the same time. Revoking a
// cluster of one touches none of the other.
func TestStory2BothAuthTypesAtOnce(t *testing.T) {
	k := newKube(t, awsirsa.AWSAuth)
	defer k.finish()
	k.setAuthMap(nodes)
	k.Step("the hub signs client certificates", func(t *testing.T) {
		if err := csr.Probe(t.Context(), k.Admin); err != nil {
			t.Error(err)
		}
	})
	byAWS, byCSR := k.join("story2-aws"), k.NewMember("story2-csr", "registration-agent")
	byCSR.Start(agent.Options{Driver: csr.New(csr.Options{})})
	k.Step("each cluster joins with its own", func(t *testing.T) {
		byAWS.accept()
		byAWS.checkIdentity(t, registration.ClusterGroup("story2-aws"))
		joinByCSR(byCSR)
		if all := mappings(t, k.Admin); len(all) != 2 || all[0]["extra"] != "kept" || all[1]["rolearn"] != byAWS.hubRole {
			t.Errorf("entries %v", all)
		}
	})
	k.Step("the cluster of aws-irsa is revoked", func(t *testing.T) {
		own := byAWS.own()
		k.SetAccepted("story2-aws", false)
		byAWS.expectDenied()
		expectRefused(t, own, "story2-aws")
		if all := mappings(t, k.Admin); len(all) != 1 || all[0]["extra"] != "kept" {
			t.Errorf("entries %v", all)
		}
		byCSR.ExpectIsolated("story2-aws")
	})
	k.Step("the cluster of csr is revoked", func(t *testing.T) {
		k.SetAccepted("story2-aws", true)
		byAWS.expectBack()
		own, before := byCSR.Own(), k.authMap().ResourceVersion
		k.SetAccepted("story2-csr", false)
		kubetest.Eventually(t, "the RBAC is gone", func() bool { return len(k.RBAC("story2-csr")) == 0 })
		expectRefused(t, own, "story2-csr")
		byAWS.login()
		byAWS.ExpectIsolated("story2-csr")
		if k.authMap().ResourceVersion != before {
			t.Error("aws-auth was written")
		}
	})
	k.Step("aws-auth is malformed", func(t *testing.T) { byAWS.outlastMalformedAuthMap(t) })
}

// joinByCSR joins a cluster without ARN, for which the default is csr.
func joinByCSR(m *regtest.Member) {
	m.T.Helper()
	m.Until("the request waits", func() bool {
		all := &certificatesv1.CertificateSigningRequestList{}
		err := m.Admin.List(m.T.Context(), all, client.MatchingLabels{ocm.ClusterNameLabel: m.Name})
		return err == nil && len(all.Items) == 1
	})
	m.SetAccepted(m.Name, true)
	m.Until("the cluster joins by csr", func() bool { return m.Joined() && len(m.Secret().Data["tls.crt"]) > 0 })
}

// expectRefused waits until the API server refuses the credential of a revoked
// cluster.
func expectRefused(t *testing.T, own client.Client, cluster string) {
	t.Helper()
	kubetest.Eventually(t, "the API server refuses the agent", func() bool {
		err := own.Get(t.Context(), client.ObjectKey{Name: cluster}, &ocm.ManagedCluster{})
		return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	})
}

// outlastMalformedAuthMap revokes the cluster while its mapping cannot be read.
// The hub overwrites nothing, and ends the job later.
func (m *member) outlastMalformedAuthMap(t *testing.T) {
	t.Helper()
	own, good, broken := m.own(), m.kube.authMap().Data["mapRoles"], "rolearn: not a list\n"
	m.kube.setAuthMap(broken)
	m.SetAccepted(m.Name, false)
	expectRefused(t, own, m.Name)
	kubetest.Eventually(t, "the hub says why", func() bool {
		return m.kube.said.Says(m.Name, "RevokeFailed", "mapRoles is not a YAML list")
	})
	if role, _ := m.inAWS(); !role || m.kube.authMap().Data["mapRoles"] != broken {
		t.Errorf("the role exists: %t, aws-auth is %q", role, m.kube.authMap().Data)
	}
	m.kube.setAuthMap(good)
	m.expectDenied()
}

// checkIdentity uses the hub as the agent.
func (m *member) checkIdentity(t *testing.T, group string) {
	t.Helper()
	own := m.own()
	user := regtest.UserOf(t, own)
	if groups := slices.Sorted(slices.Values(user.Groups)); !slices.Equal(groups,
		slices.Sorted(slices.Values([]string{group, "system:authenticated"}))) {
		t.Errorf("authenticated as %+v", user)
	}
	prefix := "arn:aws:sts::" + hubAccount + ":assumed-role/" + m.hubRole[strings.LastIndexByte(m.hubRole, '/')+1:] + "/"
	if m.kube.binding == awsirsa.AWSAuth {
		prefix = "open-cluster-management:" + m.Name + ":"
	}
	if !strings.HasPrefix(user.Username, prefix) {
		t.Errorf("authenticated as %+v", user)
	}
	if err := own.Get(t.Context(), client.ObjectKey{Namespace: m.Name, Name: ocm.LeaseName},
		&coordinationv1.Lease{}); err != nil {
		t.Error(err)
	}
}

// The agent's clients sign new tokens, and what is stored never expires.
func (k *kube) testRenewal(t *testing.T) {
	m := k.join("story6")
	short, err := cache.NewTokenCache(10, cache.WithMaxDuration(time.Second)) // stands for the 15 minutes of a token
	regtest.Must(t, err)
	defer short.Close()
	m.options.Connect = connect(auth.WithHTTPClient(k.aws.Client()), auth.WithCache(short, cache.InvolvedObject{}))
	m.restart()
	m.accept()
	own, stored, first := m.own(), m.Secret().ResourceVersion, len(tokens.accepted())
	kubetest.Eventually(t, "the hub sees two more tokens of one client", func() bool {
		regtest.Must(t, own.Get(t.Context(), client.ObjectKey{Name: "story6"}, &ocm.ManagedCluster{}))
		return len(tokens.accepted()) >= first+2
	})
	if m.Reconcile(); m.Failed != nil || m.Secret().ResourceVersion != stored {
		t.Errorf("the Secret was written, %v", m.Failed)
	}
}

// A hub administrator revokes the access of a managed cluster.
func (k *kube) testRevocation(*testing.T) {
	m := k.join("story7")
	m.accept()
	k.Step("by denial, while AWS deletes nothing", func(t *testing.T) { m.revoke(t) })
	k.Step("and gives it back", func(*testing.T) {
		k.SetAccepted("story7", true)
		m.expectBack()
	})
	k.Step("by deletion", func(t *testing.T) {
		own := m.own()
		regtest.Must(t, k.Admin.Delete(t.Context(), k.Cluster("story7")))
		kubetest.Eventually(t, "the ManagedCluster is gone", func() bool { return k.Cluster("story7").Name == "" })
		m.expectGone()
		expectRefused(t, own, "story7")
	})
}

// revoke denies the cluster while AWS deletes nothing, so that the RBAC alone
// revokes.
func (m *member) revoke(t *testing.T) {
	t.Helper()
	own, cloud := m.own(), m.kube.aws
	end := cloud.AddFault(cloudtest.Fault{Service: "eks", Action: "DeleteAccessEntry", Status: 503,
		Code: "ServiceUnavailableException"})
	defer end()
	before := cloud.Calls("eks", "DeleteAccessEntry")
	m.SetAccepted(m.Name, false)
	kubetest.Eventually(t, "the hub asks AWS to delete the access entry", func() bool {
		return cloud.Calls("eks", "DeleteAccessEntry") > before
	})
	if there := m.RBAC(m.Name); len(there) > 1 {
		t.Fatalf("AWS was asked while the cluster had %q", there)
	}
	if role, entry := m.inAWS(); !role || !entry {
		t.Errorf("in AWS: role %t, access entry %t", role, entry)
	}
	kubetest.Eventually(t, "the API server forbids the agent, whose token is still good", func() bool {
		return apierrors.IsForbidden(own.Get(t.Context(), client.ObjectKey{Name: m.Name}, &ocm.ManagedCluster{}))
	})
	end()
	m.expectDenied()
}

// One managed cluster has no access to what belongs to another one, on the hub
// and in AWS.
func (k *kube) testIsolation(*testing.T) {
	a, b := k.join("story8"), k.join("story80")
	a.accept()
	b.accept()
	for _, pair := range [][2]*member{{a, b}, {b, a}} {
		from, to := pair[0], pair[1]
		k.Step(from.Name, func(t *testing.T) {
			from.login()
			from.ExpectIsolated(to.Name)
			if err := from.assume(t, from.hubRole); err != nil {
				t.Errorf("its own role: %v", err)
			}
			if err := from.assume(t, to.hubRole); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
				t.Errorf("its neighbour's role: %v", err)
			}
		})
	}
}

// assume tries a role of the hub with the credentials of the agent.
func (m *member) assume(t *testing.T, role string) error {
	t.Helper()
	options := sts.Options{Region: "eu-west-1", HTTPClient: m.kube.aws.Client()}
	options.Credentials = aws.NewCredentialsCache(stscreds.NewWebIdentityRoleProvider(sts.New(options), m.role,
		stscreds.IdentityTokenFile(m.tokenFile)))
	_, err := sts.New(options).AssumeRole(t.Context(),
		&sts.AssumeRoleInput{RoleArn: &role, RoleSessionName: aws.String("agent")})
	return err
}
