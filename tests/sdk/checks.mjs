// What the scripts for the TypeScript SDK share. One line per check; finish() prints the count and ends with status 1 when one failed.

export function checks(alias) {
  let passed = 0;
  let failed = 0;

  async function check(name, fn) {
    try {
      await fn();
      passed++;
      console.log(`ok - ${alias}: ${name}`);
    } catch (err) {
      failed++;
      console.log(`not ok - ${alias}: ${name}\n  ${String(err?.stack ?? err).replaceAll('\n', '\n  ')}`);
    }
  }

  function finish() {
    console.log(`${passed} passed, ${failed} failed`);
    process.exit(failed ? 1 : 0);
  }

  return { check, finish };
}

// The items of all pages, or of a stream; max, so that a list without an end fails instead of hanging.
export async function collect(page, max = 10000) {
  const all = [];
  for await (const item of page) {
    all.push(item);
    if (all.length >= max) break;
  }
  return all;
}
