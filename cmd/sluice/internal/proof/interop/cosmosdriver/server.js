// Starts the server at a free port of the loopback address, and says where. It
// ends with its standard input.
"use strict";
const { createHttpServer } = require("@vercel/cosmosdb-server");

const server = createHttpServer({ keepAlive: true });
server.listen(0, "127.0.0.1", () => console.log(`ready http://127.0.0.1:${server.address().port}/`));
process.stdin.on("end", () => process.exit(0)).resume();
