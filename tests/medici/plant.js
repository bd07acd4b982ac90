// Write a small ledger with the npm package medici: `node plant.js URI`, beside its node_modules.
const mongoose = require("mongoose");
const { Book } = require("medici");

async function main() {
  await mongoose.connect(process.argv[2]);
  const book = new Book("credits");
  const day = Date.UTC(2026, 2, 8, 12);
  const at = (hours) => new Date(day + hours * 3600e3);
  const entry = (memo, hours) => book.entry(memo, at(hours));
  const grants = [["Users:7", 100], ["Users:8", 12.5]];
  for (const [user, amount] of grants) {
    await entry("top up", 0)
      .credit(user, amount, { type: "topup" }).debit("Service:Sales", amount, { type: "topup" }).commit();
  }
  for (let job = 0; job < 6; job += 1) {
    const user = job % 2 ? "Users:8" : "Users:7";
    const charged = await entry(`job ${job}`, job + 1)
      .debit(user, 0.29, { type: "usage", job: `job-${job}` })
      .credit("Service:Usage", 0.29, { type: "usage", job: `job-${job}` }).commit();
    if (job % 3 === 0) await book.void(charged._id, "failed");
  }
  await mongoose.disconnect();
}

main();
