package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

// AgentOptions describe the agent of a managed cluster.
type AgentOptions struct {
	// Image is the image whose entrypoint is wid-agent. Required.
	Image string
	// Cluster is the name of the cluster on the hub. Required.
	Cluster string
	// Namespace is the namespace of the agent, as in [CheckNamespace]. The
	// namespace of its add-ons has the suffix "-addon". Each hub that a cluster
	// joins takes an agent in a namespace of its own. Default:
	// agent.DefaultNamespace.
	Namespace string
	// AuthType is the auth type to register with, csr or aws-irsa. Required.
	AuthType string
	// HubARN and ManagedARN are the ARNs of both clusters in EKS. Required for
	// aws-irsa.
	HubARN, ManagedARN string
	// AddOnAuthType is the auth type by which add-ons reach the hub, csr or
	// token. If it is empty, the agent gets no rights to store their
	// credentials.
	AddOnAuthType string
	// AddOnTokenSeconds is the lifetime of add-on tokens in seconds. 0 uses the
	// default of wid-agent.
	AddOnTokenSeconds int64
	// Hub is the address and the CA of the hub, and Token is the credential for
	// the first contact. Both go into the bootstrap Secret. Without Hub the
	// manifests have no Secret.
	Hub   *bootstrap.ClusterInfo
	Token string
	// Replicas is the number of replicas. Nil means 2.
	Replicas *int32
	// ImagePullSecrets are the names of Secrets for the registry of the image.
	ImagePullSecrets []string
	// ExtraArgs are further flags of wid-agent. With --cluster-status=false the
	// agent gets no rights to nodes and ClusterClaims.
	ExtraArgs []string
}

// Args returns the flags of wid-agent.
func (o AgentOptions) Args() []string {
	args := []string{"--cluster-name=" + o.Cluster, "--registration-auth=" + o.AuthType, "--leader-elect"}
	add := func(flag, value string) {
		if value != "" && value != "0" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	if o.namespace() != agent.DefaultNamespace {
		add("namespace", o.Namespace)
	}
	add("eks-hub-cluster-arn", o.HubARN)
	add("eks-managed-cluster-arn", o.ManagedARN)
	add("addon-kubeclient-registration-auth", o.AddOnAuthType)
	add("addon-token-expiration-seconds", strconv.FormatInt(o.AddOnTokenSeconds, 10))
	return append(args, o.ExtraArgs...)
}

func (o AgentOptions) namespace() string { return cmp.Or(o.Namespace, agent.DefaultNamespace) }

// CheckNamespace checks the namespace of an agent. An agent may read all
// Secrets in its namespace of add-ons, so that is not another agent's.
func CheckNamespace(namespace string) error {
	if len(validation.IsDNS1123Label(namespace+AddOnSuffix)) > 0 || strings.HasPrefix(namespace, "kube-") ||
		strings.HasSuffix(namespace, AddOnSuffix) {
		return fmt.Errorf(
			"%.100q cannot be the namespace of an agent: use at most %d lower-case letters, digits and hyphens, "+
				"without the prefix kube- and the suffix %s", namespace,
			validation.DNS1123LabelMaxLength-len(AddOnSuffix), AddOnSuffix)
	}
	return nil
}

// AddOnSuffix follows the namespace of an agent in the name of the namespace of
// its add-ons.
const AddOnSuffix = "-addon"

// in moves manifests to the namespace of an agent. The names of cluster-scoped
// objects begin with it.
func in(namespace, manifests string) string {
	return strings.ReplaceAll(manifests, agent.DefaultNamespace, namespace)
}

func (o AgentOptions) check() error {
	if o.Image == "" || o.Cluster == "" {
		return errors.New("the manifests of an agent need an image and the name of the cluster")
	}
	if err := CheckNamespace(o.namespace()); err != nil {
		return err
	}
	err := checkAuthTypes("clusters", []string{o.AuthType}, registration.AuthTypeAWS, registration.AuthTypeCSR)
	if o.AddOnAuthType != "" {
		err = errors.Join(err, checkAuthTypes("add-ons", []string{o.AddOnAuthType}, registration.AuthTypeCSR,
			registration.AuthTypeToken))
	}
	return err
}

// Agent returns the manifests of an agent, the Deployment last. With Hub they
// hold the Token.
func Agent(o AgentOptions) (string, error) {
	if err := o.check(); err != nil {
		return "", err
	}
	rbac, account, err := o.rbac()
	if err != nil {
		return "", err
	}
	manifests := []string{rbac}
	if o.Hub != nil {
		secret, err := o.secret()
		if err != nil {
			return "", err
		}
		manifests = append(manifests, secret)
	}
	program, err := program{Namespace: o.namespace(), Name: ocm.AgentName, Account: account, Image: o.Image,
		Args: o.Args(), replicas: o.Replicas,
		pullSecrets: o.ImagePullSecrets, CPU: "10m", MemoryRequest: 48, MemoryLimit: 128, Egress: agentEgress}.manifest()
	return join(append(manifests, program)), err
}

// agentEgress does not restrict the agent, because it reaches AWS, and the hub
// under any address and port.
const agentEgress = "  - {}"

// rbac returns the manifests of the agent's rights, and its ServiceAccount.
// With aws-irsa the ServiceAccount has the name that its role trusts.
func (o AgentOptions) rbac() (manifest, account string, err error) {
	manifest, account = AgentRBAC(), ocm.AgentName
	if o.AddOnAuthType != "" {
		manifest = join([]string{manifest, AgentAddOnRBAC()})
	}
	if !slices.Contains(o.ExtraArgs, "--cluster-status=false") {
		manifest = join([]string{manifest, AgentStatusRBAC()})
	}
	manifest = in(o.namespace(), manifest)
	if o.AuthType != registration.AuthTypeAWS {
		return manifest, account, nil
	}
	hub, err := awsirsa.ParseClusterARN(o.HubARN)
	if err != nil {
		return "", "", err
	}
	managed, err := awsirsa.ParseClusterARN(o.ManagedARN)
	account = awsirsa.DefaultKlusterlet + "-registration-sa"
	return withRole(manifest, ocm.AgentName, account, awsirsa.AgentRoleARN(hub, managed)), account, err
}

// secret returns the bootstrap Secret.
func (o AgentOptions) secret() (string, error) {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["hub"] = &clientcmdapi.Cluster{Server: o.Hub.Server, CertificateAuthorityData: o.Hub.CAData}
	kubeconfig.AuthInfos["bootstrap"] = &clientcmdapi.AuthInfo{Token: o.Token}
	kubeconfig.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "bootstrap"}
	kubeconfig.CurrentContext = "hub"
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return "", err
	}
	secret, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": o.namespace(), "name": agent.DefaultBootstrapSecret},
		"data":     map[string]any{registration.SecretKeyKubeconfig: content}})
	return string(secret), err
}

// AgentObjects returns the objects that the agent of a namespace leaves on its
// managed cluster, apart from the Secrets of add-ons. Only kind and name of the
// last five count. Delete from the end: the Deployment would recreate others.
// With rbac they include the rights of the agent, its namespace and its Lease
// there. The namespace of add-ons stays, because their programs may run there.
func AgentObjects(namespace string, rbac bool) (objects []*unstructured.Unstructured, err error) {
	if rbac {
		all := join([]string{AgentRBAC(), AgentAddOnRBAC(), AgentStatusRBAC()})
		if objects, err = Parse(in(namespace, all)); err != nil {
			return nil, err
		}
		objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Namespace" && o.GetName() == namespace+AddOnSuffix
		})
		objects = append(objects, objectOf("coordination.k8s.io/v1", "Lease", namespace, ocm.AgentName))
	}
	for _, o := range []struct{ version, kind, name string }{
		{"v1", "Secret", ocm.HubKubeconfigSecret}, {"v1", "Secret", agent.DefaultBootstrapSecret},
		{"networking.k8s.io/v1", "NetworkPolicy", ocm.AgentName}, {"policy/v1", "PodDisruptionBudget", ocm.AgentName},
		{"apps/v1", "Deployment", ocm.AgentName},
	} {
		objects = append(objects, objectOf(o.version, o.kind, namespace, o.name))
	}
	return objects, nil
}

func objectOf(version, kind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(version)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}
