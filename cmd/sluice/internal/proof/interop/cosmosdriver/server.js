// Starts the server on a free port of the loopback address, and prints its
// address. It ends when its standard input ends.
"use strict";
const { createHttpServer } = require("@vercel/cosmosdb-server");

const server = createHttpServer({ keepAlive: true });
server.listen(0, "127.0.0.1", () => console.log(`ready http://127.0.0.1:${server.address().port}/`));
process.stdin.on("end", () => process.exit(0)).resume();
