package registration

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

// Driver is the agent's half of one way to authenticate to a hub. A driver is a value: it knows no flags, no files and no
// globals. Implementations are safe for concurrent use, since one value serves all items of a process.
type Driver interface {
	// Name returns the auth type by which users pick the driver, such as "csr". It never changes.
	Name() string

	// Next looks at what there is and returns what should be. It changes nothing on the managed cluster: the reconciler stores
	// the Step, then calls Next again. Calls to the hub go through Input.Hub and are idempotent.
	//
	// A driver stores state before it acts on it: it returns a new private key in Step.State, and makes the request for its
	// certificate in the next call, when Input.State holds the key. A restart at any moment then repeats no request.
	//
	// An error is retried with back-off and becomes an Event; it never holds a secret. What a person has to mend is a Condition.
	Next(ctx context.Context, in Input) (Step, error)
}

// Input is what a driver sees. It changes none of it.
type Input struct {
	// Now is the time by the clock of the reconciler.
	Now time.Time
	// Cluster and Agent are the names of the managed cluster and of its agent, both DNS labels. Addon is that of the add-on,
	// "" for the cluster's own registration.
	Cluster, Agent, Addon string
	// Item is the registration item of an add-on, the zero value for the cluster's own registration.
	Item ocm.Registration
	// Stored are the keys of the Secret that hold the credential: those of Credential.Files, "kubeconfig", "cluster-name" and
	// "agent-name". State are the driver's own notes from the same Secret.
	//
	// Only the two names are there if another driver made the credential, or if the hub answered it with 401: get another one. The
	// kubeconfig alone is missing if the agent cannot use it, as after an edit: return the Credential again, from the other keys.
	// customSigner items have the Files alone, neither kubeconfig nor names.
	Stored, State map[string][]byte
	// Hub reaches the hub: with the stored credential if the hub takes it, else with the bootstrap credential. For add-ons it has the
	// cluster's credential.
	Hub client.Client
	// Conditions are those of the ManagedCluster or of the add-on, empty while there is no such object.
	Conditions []metav1.Condition
	// Annotations are those of the same object.
	Annotations map[string]string
}

// Step is the state that should be, not a change. The reconciler stores it as a whole, with optimistic locking.
type Step struct {
	// Credential replaces everything that is stored. Nil keeps it.
	Credential *Credential
	// State replaces the driver's notes, such as a pending key. Nil drops them.
	State map[string][]byte
	// Condition is set on the ManagedCluster or the add-on. Before the cluster has a credential of its own it becomes an Event, since
	// bootstrap users cannot write the status. Return it with every Step: one that has not changed is not written. Nil leaves the
	// conditions alone. Of the items of an add-on that return the same type, the first that is False counts, else the first.
	Condition *metav1.Condition
	// At is when to call Next again at the latest. The zero time means when something changes.
	At time.Time
	// Declare writes driver and subject into the add-on's item. Nil leaves the item alone.
	Declare *ocm.Registration
}

// Credential is what an agent authenticates to the hub with. Secrets in it never reach a log, an error, an Event or a condition.
type Credential struct {
	// User is the user entry of the kubeconfig that the reconciler composes with the hub's address and CA. Paths of files
	// in it are names of Files. It is not used for customSigner items.
	User *clientcmdapi.AuthInfo
	// Files are keys of the Secret beside the kubeconfig, such as "tls.crt" and "tls.key".
	Files map[string][]byte
}

// Annotator is implemented by drivers whose ManagedCluster carries marks, such as the cluster's ARN.
type Annotator interface {
	// Annotations returns the annotations that the agent sets on its ManagedCluster, at creation and later.
	Annotations() map[string]string
}

// Forgetter is implemented by drivers that keep something of each add-on in memory, such as metrics.
type Forgetter interface {
	// Forget drops what the driver keeps of an add-on that the hub has deleted.
	Forget(addOn string)
}

// HubDriver is the hub's half of a driver. Implementations are safe for concurrent use: one cluster's slow call delays no other. Their errors
// become conditions and Events, so they never hold a secret.
type HubDriver interface {
	// Name returns the auth type, the same as that of the agent's half.
	Name() string

	// Claim returns what the cluster says that it is, such as an ARN, in one canonical form. It is pure: it looks at nothing but its
	// argument. ok is false where the cluster has no marks of this driver; an error refuses the cluster and becomes its condition.
	Claim(cluster *ocm.ManagedCluster) (claim string, ok bool, err error)

	// Approves reports whether the cluster is accepted without a person. Without a configuration that says so it is false.
	Approves(ctx context.Context, cluster *ocm.ManagedCluster, claim string) (bool, error)

	// Grant gives the accepted cluster what it needs outside the hub's RBAC, which the reconciler keeps itself. It is idempotent and
	// repairs drift. The duration says when to look again; zero leaves that to the reconciler. With an error it says when to retry a
	// cluster that was never granted, instead of the usual back-off of up to a minute. claim is the one that was recorded when
	// the cluster was first accepted, never a later one.
	Grant(ctx context.Context, cluster, claim string) (time.Duration, error)

	// Revoke takes away what Grant gave, going by the recorded claim. It is idempotent, and touches nothing that does not
	// carry the ownership marks of this hub and this cluster. The reconciler has removed the RBAC before.
	Revoke(ctx context.Context, cluster, claim string) error
}
