// Reads every id of a container back with Azure's own client, and counts which
// of the documents numbered 0 to COUNT-1 are missing or there twice, and which
// ids are none of them. Environment: COSMOS_ENDPOINT, COSMOS_KEY, COUNT.
'use strict'
const { CosmosClient } = require('@azure/cosmos')

async function main() {
  const count = Number(process.env.COUNT)
  const client = new CosmosClient({ endpoint: process.env.COSMOS_ENDPOINT, key: process.env.COSMOS_KEY })
  const container = client.database('db').container('docs')
  const seen = new Uint8Array(count)
  const result = { counted: 0, read: 0, missing: 0, doubled: 0, foreign: 0 }
  const counted = await container.items.query('SELECT VALUE COUNT(1) FROM c').fetchAll()
  result.counted = counted.resources[0]
  const pages = container.items.query('SELECT VALUE c.id FROM c', { maxItemCount: 20000 })
  let reported = Date.now()
  while (pages.hasMoreResults()) {
    const { resources } = await pages.fetchNext()
    for (const id of resources || []) {
      result.read++
      const match = /^doc-(\d{10,})$/.exec(id)
      const n = match ? Number(match[1]) : -1
      if (n < 0 || n >= count) result.foreign++
      else if (seen[n]++) result.doubled++
    }
    if (Date.now() - reported > 5000) {
      reported = Date.now()
      console.error(`read back ${result.read} of ${count}`)
    }
  }
  for (const n of seen) if (n === 0) result.missing++
  console.log(JSON.stringify(result))
  const exact = result.counted === count && result.read === count && !result.missing && !result.doubled && !result.foreign
  process.exit(exact ? 0 : 1)
}

main().catch((err) => {
  console.error(err)
  process.exit(2)
})
