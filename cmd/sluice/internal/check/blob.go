package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
)

// blobLease is the shortest lease that Azure grants.
const blobLease = 15 * time.Second

// blobChecks are the checks of a container of Azure Blob Storage.
var blobChecks = []check[*blobSystem]{
	{"blob.create", "A blob that exists is not overwritten by a write that requires that it does not: two processes may create the same one.", 0, (*blobSystem).checkCreate},
	{"blob.match", "A write that names an older version of the blob is refused: every write of Sluice names the version that it read.", 0, (*blobSystem).checkMatch},
	{"blob.lease", "A blob under a lease refuses a second lease, and writes without the lease's ID: it keeps earlier owners away.", 0, (*blobSystem).checkBlobLease},
	{"blob.list", "A listing shows what was written before it, with metadata and leases: processes see each other by it.", 0, (*blobSystem).checkList},
	{"blob.fence", "A checkpoint of an earlier owner, or one that would go back, is refused.", 0, (*blobSystem).checkFence},
	{"blob.deadletters", "A stored dead letter is found again, with its body.", 0, (*blobSystem).checkDeadLetters},
	{"blob.clock", "The server's clock runs as fast as this machine's: an owner gives up by its own clock, the lease expires by the server's.", 0, (*blobSystem).checkClock},
	{"blob.speed", "A write takes less than a second: each renewal of a lease takes three requests.", 0, (*blobSystem).measure},
}

// BlobAddress is how to connect to a container.
type BlobAddress struct {
	Container string // its URL, or its name
	Config    blobstore.Config
	Mirror    bool // checkpoints are mirrored into it; it has no leases and no dead letters
}

// blobSystem is a container that is checked.
type blobSystem struct {
	opts   Options
	client *container.Client
	prefix string
	mirror bool
	store  *blobstore.Store
	// requests is how many of each kind are measured.
	requests int

	numbers atomic.Int64
}

// OpenBlob makes a [System] of a container. It does not connect.
func OpenBlob(a BlobAddress, opts Options) (System, error) {
	if a.Config.Client.Transport == nil {
		a.Config.Client.Transport = detached{&http.Client{}}
	}
	client, err := blobstore.Connect(a.Container, &a.Config)
	if err != nil {
		return nil, err
	}
	prefix := a.Config.Prefix + "sluice-check-" + opts.ID + "/"
	if a.Mirror {
		prefix += "mirror/" // leases may be in the same container
	}
	return &blobSystem{opts: opts, client: client, requests: 30, mirror: a.Mirror, prefix: prefix}, nil
}

// Name implements [System].
func (s *blobSystem) Name() string {
	u, err := url.Parse(s.client.URL())
	if err != nil {
		return "container of Azure Blob Storage"
	}
	name := "container " + u.Host + u.Path
	if s.mirror {
		name += " (progress_blobs)"
	}
	return name
}

// mirrorChecks are those of the checks that a mirror of checkpoints depends on.
var mirrorChecks = []string{"blob.create", "blob.match", "blob.list"}

// Checks implements [System].
func (s *blobSystem) Checks() []Check {
	all := bind(s, blobChecks)
	if s.mirror {
		return slices.DeleteFunc(all, func(c Check) bool { return !slices.Contains(mirrorChecks, c.Name) })
	}
	return append(all, leased(s.lease)...)
}

func (s *blobSystem) Close(context.Context) {}

func (s *blobSystem) Creates() []string {
	return []string{"the container, if it is missing; it is removed at the end unless it holds other blobs by then", "blobs whose names begin with " + s.prefix + "; they are removed at the end"}
}

const blobRole = "give the shared access signature the rights read, add, create, write, delete and list, or the identity the role Storage Blob Data Contributor on the container"

// Rights implements [System]. Writing is tried with conditions that fail: Azure looks at the rights
// before it looks at the conditions.
func (s *blobSystem) Rights(ctx context.Context) []Right {
	one := int32(1)
	_, err := s.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &s.prefix, MaxResults: &one}).NextPage(ctx)
	missing := bloberror.HasCode(err, bloberror.ContainerNotFound)
	if missing {
		err = nil
	}
	list := Right{Name: "list blobs"}
	list.grant(safe(err), "correct what the error names; "+blobRole)
	if !list.Granted || missing { // the preparation creates the container, or reports that it may not
		return []Right{list}
	}
	name := s.prefix + "rights"
	impossible := azcore.ETag(`"0x0"`)
	condition := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &impossible}}
	tries := []struct {
		name string
		do   func() error
	}{
		{"read blobs", func() error { _, err := s.client.NewBlobClient(name).GetProperties(ctx, nil); return err }},
		{"write blobs", func() error {
			_, err := s.client.NewBlockBlobClient(name).Upload(ctx, empty(), &blockblob.UploadOptions{AccessConditions: condition})
			return err
		}},
		{"delete blobs", func() error {
			_, err := s.client.NewBlobClient(name).Delete(ctx, &blob.DeleteOptions{AccessConditions: condition})
			return err
		}},
	}
	rights := []Right{list}
	for _, t := range tries {
		r := Right{Name: t.name}
		err := t.do()
		if status := statusOf(err); status == http.StatusNotFound || status == http.StatusPreconditionFailed || status == http.StatusConflict {
			err = nil
		}
		r.grant(safe(err), blobRole)
		rights = append(rights, r)
	}
	return rights
}

func empty() io.ReadSeekCloser { return streaming.NopCloser(bytes.NewReader(nil)) }

// safe is an error without the signature that the SDK's errors may contain.
func safe(err error) error {
	if err == nil {
		return nil
	}
	return blobstore.SafeError(err)
}

func statusOf(err error) int {
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return answer.StatusCode
	}
	return 0
}

// Prepare implements [System].
func (s *blobSystem) Prepare(ctx context.Context, made *Ledger) error {
	_, err := s.client.GetProperties(ctx, nil)
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		made.Add("the container", s.removeContainer)
	}
	made.Add("blobs "+s.prefix, s.removeBlobs)
	store, err := blobstore.New(ctx, s.client, &blobstore.Config{Prefix: s.prefix})
	s.store = store
	return err
}

// removeContainer removes the container, unless another program has written to it meanwhile.
func (s *blobSystem) removeContainer(ctx context.Context) error {
	one := int32(1)
	page, err := s.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: &one}).NextPage(ctx)
	if err == nil && len(page.Segment.BlobItems) > 0 {
		return nil
	}
	if err == nil {
		_, err = s.client.Delete(ctx, nil)
	}
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		err = nil
	}
	return safe(err)
}

// removeBlobs removes all blobs with the prefix, also those under a lease.
func (s *blobSystem) removeBlobs(ctx context.Context) error {
	var left []error
	pages := s.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &s.prefix})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if bloberror.HasCode(err, bloberror.ContainerNotFound) {
			return nil
		}
		if err != nil {
			return safe(err)
		}
		for _, item := range page.Segment.BlobItems {
			left = append(left, s.removeBlob(ctx, *item.Name))
		}
	}
	return errors.Join(left...)
}

func (s *blobSystem) removeBlob(ctx context.Context, name string) error {
	client := s.client.NewBlobClient(name)
	_, err := client.Delete(ctx, nil)
	if bloberror.HasCode(err, bloberror.LeaseIDMissing) {
		breaker, makeErr := lease.NewBlobClient(client, nil)
		if makeErr != nil {
			return makeErr
		}
		if _, err = breaker.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: ptr(int32(0))}); err == nil {
			_, err = client.Delete(ctx, nil)
		}
	}
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		err = nil
	}
	return safe(err)
}

func (s *blobSystem) number() string { return fmt.Sprint(s.numbers.Add(1)) }

func (s *blobSystem) lease() *leaseChecks {
	return &leaseChecks{s.store.Leases(), group(s.opts), blobLease, func() string { return "p" + s.number() }}
}

// upload creates a blob, and returns its version.
func (s *blobSystem) upload(ctx context.Context, name string, conditions *blob.ModifiedAccessConditions) (azcore.ETag, error) {
	r, err := s.client.NewBlockBlobClient(name).Upload(ctx, empty(), &blockblob.UploadOptions{AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: conditions}})
	if err != nil || r.ETag == nil {
		return "", err
	}
	return *r.ETag, nil
}

// mark replaces a blob's metadata under conditions, as a checkpoint is written.
func (s *blobSystem) mark(ctx context.Context, name, value string, match *azcore.ETag, leaseID *string) (azcore.ETag, error) {
	conditions := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: match}}
	if leaseID != nil {
		conditions.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: leaseID}
	}
	r, err := s.client.NewBlobClient(name).SetMetadata(ctx, map[string]*string{"mark": &value}, &blob.SetMetadataOptions{AccessConditions: conditions})
	if err != nil || r.ETag == nil {
		return "", err
	}
	return *r.ETag, nil
}

func (s *blobSystem) checkCreate(ctx context.Context) Finding {
	name := s.prefix + "create" + s.number()
	none := &blob.ModifiedAccessConditions{IfNoneMatch: ptr(azcore.ETagAny)}
	if _, err := s.upload(ctx, name, none); err != nil {
		return failed("creating a blob", safe(err))
	}
	switch _, err := s.upload(ctx, name, none); statusOf(err) {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return held("the second creation was refused with %d", statusOf(err))
	default:
		if err != nil {
			return failed("creating the blob again", safe(err))
		}
	}
	return differed("a blob that exists was overwritten with If-None-Match: *")
}

func (s *blobSystem) checkMatch(ctx context.Context) Finding {
	name := s.prefix + "match" + s.number()
	first, err := s.upload(ctx, name, nil)
	if err != nil {
		return failed("creating a blob", safe(err))
	}
	second, err := s.mark(ctx, name, "second", &first, nil)
	if err != nil {
		return failed("writing with the current version", safe(err))
	}
	if first == second {
		return differed("the version of a blob did not change with its metadata")
	}
	switch _, err := s.mark(ctx, name, "third", &first, nil); {
	case err == nil:
		return differed("a write that names an older version was carried out")
	case statusOf(err) != http.StatusPreconditionFailed:
		return failed("writing with an older version", safe(err))
	}
	return held("the current version is accepted, an older one refused")
}

func (s *blobSystem) checkBlobLease(ctx context.Context) Finding {
	name := s.prefix + "lease" + s.number()
	if _, err := s.upload(ctx, name, nil); err != nil {
		return failed("creating a blob", safe(err))
	}
	first, err := lease.NewBlobClient(s.client.NewBlobClient(name), nil)
	if err != nil {
		return failed("preparing a lease", err)
	}
	second, err := lease.NewBlobClient(s.client.NewBlobClient(name), nil)
	if err != nil {
		return failed("preparing a lease", err)
	}
	const seconds = int32(blobLease / time.Second)
	if _, err := first.AcquireLease(ctx, seconds, nil); err != nil {
		return failed("acquiring a lease", safe(err))
	}
	if _, err := second.AcquireLease(ctx, seconds, nil); err == nil {
		return differed("a second lease on the same blob was granted")
	} else if statusOf(err) != http.StatusConflict {
		return failed("acquiring a second lease", safe(err))
	}
	if _, err := s.mark(ctx, name, "without", nil, nil); err == nil {
		return differed("a blob under a lease was written without its ID")
	} else if status := statusOf(err); status != http.StatusPreconditionFailed && status != http.StatusConflict {
		return failed("writing without the lease's ID", safe(err))
	}
	if _, err := s.mark(ctx, name, "with", nil, first.LeaseID()); err != nil {
		return failed("writing with the lease's ID", safe(err))
	}
	if _, err := first.ReleaseLease(ctx, nil); err != nil {
		return failed("releasing the lease", safe(err))
	}
	if _, err := second.AcquireLease(ctx, seconds, nil); err != nil {
		return differed("a lease that was released cannot be acquired: %s", oneLine(safe(err)))
	}
	return held("a second lease and writes without the ID are refused")
}

func (s *blobSystem) checkList(ctx context.Context) Finding {
	name := s.prefix + "list" + s.number()
	if _, err := s.upload(ctx, name, nil); err != nil {
		return failed("creating a blob", safe(err))
	}
	for i := range 5 {
		value := fmt.Sprint("v", i)
		if _, err := s.mark(ctx, name, value, nil, nil); err != nil {
			return failed("writing", safe(err))
		}
		page, err := s.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &name, Include: container.ListBlobsInclude{Metadata: true}}).NextPage(ctx)
		if err != nil {
			return failed("listing", safe(err))
		}
		shown := "nothing"
		for _, item := range page.Segment.BlobItems {
			for key, v := range item.Metadata {
				if strings.EqualFold(key, "mark") && v != nil {
					shown = *v
				}
			}
		}
		if shown != value {
			return differed("the metadata was %s when the listing showed %s", value, shown)
		}
	}
	return held("each listing showed the newest metadata")
}

func (s *blobSystem) checkFence(ctx context.Context) Finding {
	partition := "p" + s.number()
	old := driver.Lease{Group: group(s.opts), Partition: partition, Owner: "first", Epoch: 1}
	now := driver.Lease{Group: group(s.opts), Partition: partition, Owner: "second", Epoch: 2}
	if _, err := s.store.Claim(ctx, old, incarnation); err != nil {
		return failed("claiming a checkpoint", err)
	}
	if err := s.store.Advance(ctx, old, incarnation, positionAt(10), nil); err != nil {
		return failed("storing a checkpoint", err)
	}
	if _, err := s.store.Claim(ctx, now, incarnation); err != nil {
		return failed("claiming for the next owner", err)
	}
	if err := s.store.Advance(ctx, old, incarnation, positionAt(11), nil); err == nil {
		return differed("the earlier owner stored a checkpoint")
	} else if !errors.Is(err, driver.ErrFenced) {
		return failed("storing for the earlier owner", err)
	}
	if err := s.store.Advance(ctx, now, incarnation, positionAt(9), nil); err == nil {
		return differed("a checkpoint went back from 10 to 9")
	} else if !errors.Is(err, driver.ErrFenced) {
		return failed("storing an earlier checkpoint", err)
	}
	c, err := s.store.Claim(ctx, now, incarnation)
	switch {
	case err != nil:
		return failed("reading the checkpoint", err)
	case c.Position.Sequence != 10:
		return differed("the checkpoint is at %v instead of 10", c.Position)
	}
	return held("the earlier owner and a move back are refused")
}

func (s *blobSystem) checkDeadLetters(ctx context.Context) Finding {
	partition := "p" + s.number()
	body := []byte(`{"sluice-check":"` + s.opts.ID + `"}`)
	letter := driver.DeadLetter{
		Group: group(s.opts), Incarnation: incarnation, FailedAt: time.Now().UTC().Truncate(time.Second), Error: "stored by sluice check", Attempts: 1, Status: driver.StatusDead,
		Event: driver.Event{Partition: partition, Sequence: 7, Body: body}, HasBody: true,
	}
	if err := s.store.Park(ctx, []driver.DeadLetter{letter}); err != nil {
		return failed("storing a dead letter", err)
	}
	list, err := s.store.List(ctx, group(s.opts), driver.DeadLetterFilter{Partition: partition})
	if err != nil {
		return failed("listing dead letters", err)
	}
	if len(list) != 1 {
		return differed("one dead letter was stored, and %d are listed", len(list))
	}
	got, err := s.store.Get(ctx, group(s.opts), list[0].ID)
	switch {
	case err != nil:
		return failed("reading the dead letter", err)
	case !bytes.Equal(got.Event.Body, body):
		return differed("the body of the dead letter has %d bytes instead of %d", len(got.Event.Body), len(body))
	}
	return held("a dead letter and its body were found again")
}

// clock is the time in an answer, to the second: the middle of it.
func (s *blobSystem) clock(ctx context.Context) (time.Time, error) {
	r, err := s.client.GetProperties(ctx, nil)
	switch {
	case err != nil:
		return time.Time{}, safe(err)
	case r.Date == nil:
		return time.Time{}, errors.New("an answer without a date")
	}
	return r.Date.Add(500 * time.Millisecond), nil
}

func (s *blobSystem) checkClock(ctx context.Context) Finding { return checkClock(ctx, s.clock) }

func (s *blobSystem) measure(ctx context.Context) Finding {
	reads, err := roundTrips(ctx, "read of a container's properties", s.requests, func(ctx context.Context) error { _, err := s.clock(ctx); return err })
	if err != nil {
		return failed("measuring", err)
	}
	lease := driver.Lease{Group: group(s.opts), Partition: "p" + s.number(), Owner: "first", Epoch: 1}
	if _, err := s.store.Claim(ctx, lease, incarnation); err != nil {
		return failed("claiming a checkpoint", err)
	}
	position := int64(0)
	writes, err := roundTrips(ctx, "checkpoint", s.requests, func(ctx context.Context) error {
		position++
		return s.store.Advance(ctx, lease, incarnation, positionAt(position), nil)
	})
	if err != nil {
		return failed("storing checkpoints", err)
	}
	o := held("%d checkpoints were stored", position).with(append(reads, writes...)...)
	if writes[0].Value > 2000 {
		o.State, o.Found = Failed, "half of the checkpoints, of two requests each, take longer than two seconds"
	}
	return o
}
