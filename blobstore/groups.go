package blobstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/driver"
)

var (
	_ driver.GroupLister = (*Leases)(nil)
	_ driver.GroupLister = (*Store)(nil)
)

// Groups implements [driver.GroupLister].
func (l *Leases) Groups(ctx context.Context, group driver.Group) ([]driver.Group, error) {
	return l.store.Groups(ctx, group)
}

// Groups implements [driver.GroupLister]. It lists folders, and opens only those whose names
// equal the group's without regard to case.
func (s *Store) Groups(ctx context.Context, group driver.Group) (groups []driver.Group, err error) {
	found := []string{s.prefix}
	for _, name := range []string{strings.TrimSuffix(group.Namespace, "."), group.Topic, group.Name} {
		var next []string
		for _, folder := range found {
			inside, err := s.folders(ctx, folder)
			if err != nil {
				return nil, fmt.Errorf("list groups: %w", err)
			}
			for _, segment := range inside {
				if text, ours := unescape(segment); ours && strings.EqualFold(strings.TrimSuffix(text, "."), name) {
					next = append(next, folder+segment+"/")
				}
			}
		}
		found = next
	}
	for _, folder := range found {
		names := strings.Split(strings.TrimPrefix(folder, s.prefix), "/")
		var g driver.Group
		for i, into := range []*string{&g.Namespace, &g.Topic, &g.Name} {
			*into, _ = unescape(names[i])
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// folders returns the names of the folders in a folder, whose name ends in a slash.
func (s *Store) folders(ctx context.Context, folder string) (names []string, err error) {
	pages := s.client.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &folder})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, safeError(err)
		}
		if page.Segment == nil {
			return nil, fmt.Errorf("answer of Azure Storage without the folders of %s", folder)
		}
		for _, p := range page.Segment.BlobPrefixes {
			if p != nil && p.Name != nil && len(*p.Name) > len(folder) {
				names = append(names, strings.TrimSuffix((*p.Name)[len(folder):], "/"))
			}
		}
	}
	return names, nil
}
