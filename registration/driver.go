package registration

import (
	"context"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

// Driver is the agent's half of one way to authenticate to a hub. It knows no
// flags, files or globals. Implementations are safe for concurrent use, because
// one value serves all items of a process.
type Driver interface {
	// Name returns the auth type by which users pick the driver, such as "csr".
	// It never changes.
	Name() string

	// Next compares the stored state with the desired state, and returns the
	// desired one. It changes nothing on the managed cluster: the reconciler
	// stores the Step, then calls Next again. Calls to the hub go through
	// Input.Hub and are idempotent.
	//
	// A driver stores state before it acts on it. It returns a new private key
	// in Step.State. It requests the certificate in the next call, when
	// Input.State holds the key. A restart at any moment then repeats no
	// request.
	//
	// The reconciler retries an error with back-off and records it as an Event,
	// so it never holds a secret. Return a Condition for a problem that needs
	// an edit.
	Next(ctx context.Context, in Input) (Step, error)
}

// Input is the state that a driver reads. A driver never changes it.
type Input struct {
	// Now is the time on the reconciler's clock.
	Now time.Time
	// Cluster and Agent name the managed cluster and its agent; both are DNS
	// labels. Addon names the add-on, and is "" for the cluster's own
	// registration.
	Cluster, Agent, Addon string
	// Item is the registration item of an add-on, or the zero value for the
	// cluster's own registration.
	Item ocm.Registration
	// Stored holds the credential's keys of the Secret: Credential.Files,
	// "kubeconfig", "cluster-name" and "agent-name". State holds the driver's
	// own state from the same Secret.
	//
	// Stored has only the two names if another driver made the credential, or
	// if the hub answered it with 401. Get a new credential then. It lacks only
	// the kubeconfig if the agent cannot use the kubeconfig, for example after
	// an edit. Return the Credential again then, from the other keys. Stored of
	// a customSigner item has only the Files.
	Stored, State map[string][]byte
	// Hub is a client of the hub. It uses the stored credential if the hub
	// accepts it, else the bootstrap credential. For add-ons it uses the
	// cluster's credential.
	Hub client.Client
	// Conditions are the conditions of the ManagedCluster or the add-on. They
	// are empty if the object does not exist.
	Conditions []metav1.Condition
	// Annotations are the annotations of the same object.
	Annotations map[string]string
}

// Step is the desired state, not a change. The reconciler stores it as a whole,
// with optimistic locking.
type Step struct {
	// Credential replaces everything that is stored. Nil keeps it.
	Credential *Credential
	// State replaces the driver's stored state, such as a pending key. Nil
	// drops it.
	State map[string][]byte
	// Condition is set on the ManagedCluster or the add-on. Before the cluster
	// has a credential of its own it becomes an Event, because bootstrap users
	// cannot write the status. Return it with every Step: the reconciler writes
	// only changes. Nil leaves the conditions unchanged. If several items of an
	// add-on return the same type, the first one that is False counts, else the
	// first one.
	Condition *metav1.Condition
	// At is the latest time of the next call of Next. The zero time waits for a
	// change.
	At time.Time
	// Declare writes driver and subject into the add-on's item. Nil leaves the
	// item unchanged.
	Declare *ocm.Registration
}

// Credential authenticates an agent to the hub. Its secrets never reach a log,
// an error, an Event or a condition.
type Credential struct {
	// User is the user entry of the kubeconfig. The reconciler adds the hub's
	// address and CA. File paths in it are keys of Files. customSigner items do
	// not use it.
	User *clientcmdapi.AuthInfo
	// Files are further keys of the Secret, such as "tls.crt" and "tls.key".
	Files map[string][]byte
}

// Annotator is an optional interface of drivers that set annotations on their
// ManagedCluster, such as the cluster's ARN.
type Annotator interface {
	// Annotations returns the annotations that the agent sets on its
	// ManagedCluster, at creation and later.
	Annotations() map[string]string
}

// Forgetter is an optional interface of drivers that keep data of each add-on
// in memory, such as metrics.
type Forgetter interface {
	// Forget drops the data of an add-on that the hub has deleted.
	Forget(addOn string)
}

// RESTConfigurer is an optional interface of drivers whose user entry runs a
// program, such as aws. The agent itself never runs one.
type RESTConfigurer interface {
	// RESTConfig returns a configuration with the stored credential, which
	// renews itself and outlives ctx. The agent sets address and CA on it.
	// RESTConfig must run no program and read no file that stored names,
	// because a person may edit the Secret.
	RESTConfig(ctx context.Context, stored map[string][]byte) (*rest.Config, error)
}

// HubDriver is the hub's half of a driver. Implementations are safe for
// concurrent use. A slow call for one cluster delays no other cluster. Errors
// become conditions and Events, so they never hold a secret.
type HubDriver interface {
	// Name returns the auth type, the same as the agent's half.
	Name() string

	// Claim returns the identity that the cluster claims, such as an ARN, in
	// one canonical form. It is pure, and reads only UID, annotations and spec
	// of its argument, because an administrator accepts the values that the hub
	// has read from them. ok is false if the cluster has no annotations of this
	// driver. An error refuses the cluster and becomes its condition.
	Claim(cluster *ocm.ManagedCluster) (claim string, ok bool, err error)

	// Approves reports whether the driver's configuration accepts the cluster
	// without an administrator. By default it is false.
	Approves(ctx context.Context, cluster *ocm.ManagedCluster, claim string) (bool, error)

	// Grant gives the accepted cluster its access outside the hub's RBAC; the
	// reconciler itself maintains the RBAC. It is idempotent and repairs drift.
	// The duration is the time until the next call. With zero, the reconciler
	// chooses. With an error, the duration delays the retry for a cluster
	// without a grant, instead of the usual back-off of up to a minute. claim
	// is the claim at the first acceptance, never a later one.
	Grant(ctx context.Context, cluster, claim string) (time.Duration, error)

	// Revoke reverses Grant for the recorded claim. It is idempotent, and
	// touches only objects with the ownership labels or tags of this hub and
	// this cluster. The reconciler has removed the RBAC before.
	Revoke(ctx context.Context, cluster, claim string) error
}

// HubRecorded is an optional interface of hub drivers that grant nothing
// outside the hub, such as package csr. It saves requests.
type HubRecorded interface {
	// Granted reports whether Grant has nothing to do for an accepted cluster
	// with this ClusterRole. It is pure and reads only its arguments. The
	// reconciler then does not call Grant.
	Granted(cluster string, role *rbacv1.ClusterRole) bool
}

// HubSetup is an optional interface of hub drivers with controllers of their
// own, such as the approver of package csr.
type HubSetup interface {
	// Setup adds the controllers to the manager.
	Setup(mgr ctrl.Manager) error
}
