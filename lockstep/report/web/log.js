// The log of a run as columns with room to grow, and where its iterations are on an axis.
"use strict";
(() => {
  const {finite} = Lockstep;

  // As larger_values_are_better() of runs/store/stored_run.h.
  const smallerIsBetter = metric => /loss|error|rmse|mse|mae|distance|perplexity/.test(metric.slice(metric.lastIndexOf(".") + 1));
  // As metric_is_share() of engine/nn/metrics/metric.h.
  const isShare = metric => /(^|[._])(accuracy|top-\d+|precision|recall)$/.test(metric);

  // Between knots a straight line; before the first and after the last one their values.
  function along(knots) {
    const x = knots.map(k => k[0]), y = knots.map(k => k[1]);
    return at => {
      const i = Lockstep.lower(x, at);
      if (i === 0) return y[0];
      if (i === x.length) return y[i - 1];
      return y[i - 1] + (y[i] - y[i - 1]) * (at - x[i - 1]) / (x[i] - x[i - 1]);
    };
  }

  class Log {
    constructor(iterationsPerEpoch) {
      this.x = []; this.loss = []; this.accuracy = []; this.rate = []; this.epochs = []; this.times = []; this.validations = []; this.events = [];
      this.elapsed = 0; this.seconds = 0; this.images = 0; this.iterations = 0; this.last = 0; this.position = 0; this.mark = "";
      this.perEpoch = iterationsPerEpoch;
    }
    add(chunk) {
      const x = Array.isArray(chunk.x) ? chunk.x : chunk.loss.map((_, i) => chunk.x + i);
      for (let i = 0; i < x.length; ++i) {
        this.x.push(x[i]);
        this.loss.push(chunk.loss[i]);
        this.accuracy.push(chunk.accuracy.length ? chunk.accuracy[i] : null);
      }
      for (const key of ["rate", "epochs", "times", "validations", "events"]) for (const one of chunk[key] || []) {
        // A stream that begins later tells the present rate and epoch again.
        if ((key === "rate" || key === "epochs") && this[key].at(-1)?.[1] === one[1]) continue;
        this[key].push(one);
      }
      this.elapsed = chunk.elapsed ?? this.elapsed;
      this.seconds += chunk.seconds; this.images += chunk.images; this.iterations += chunk.iterations;
      this.recent = chunk.seconds > 0 ? chunk.images / chunk.seconds : this.recent;
      this.recentIterations = chunk.seconds > 0 ? chunk.iterations / chunk.seconds : this.recentIterations;
      this.last = chunk.last || this.last;
      this.workers = chunk.workers ?? this.workers;
      this.position = chunk.position;
      this.mark = chunk.mark || "";
      return this;
    }
    classifies() { return this.accuracy.some(finite) || this.validations.some(v => finite(v.validation_accuracy)); }

    // "loss", "accuracy" and the metrics that the user asked for.
    metrics() {
      const names = new Set(["loss"]);
      if (this.classifies()) names.add("accuracy");
      for (const v of this.validations) for (const name of Object.keys(v.validation_metrics || {})) names.add(name);
      return [...names];
    }
    // The value of a metric at a validation.
    static of(v, metric) { return v["validation_" + metric] ?? v.validation_metrics?.[metric]; }
    // Its values at the iterations of the validations.
    validation(metric) {
      const known = this.validations.filter(v => finite(Log.of(v, metric)));
      return {x: known.map(v => v.iteration), y: known.map(v => Log.of(v, metric))};
    }
    // {value, iteration} of the best validation, and of the last one; undefined if there is none.
    best(metric) {
      const {x, y} = this.validation(metric), down = smallerIsBetter(metric);
      let k = -1;
      y.forEach((value, i) => { if (k < 0 || (down ? value < y[k] : value > y[k])) k = i; });
      return k < 0 ? undefined : {value: y[k], iteration: x[k]};
    }
    newest(metric) {
      const {x, y} = this.validation(metric);
      return x.length ? {value: y.at(-1), iteration: x.at(-1)} : undefined;
    }

    // Seconds until the last iteration; a continued run may count from 0 again.
    timeKnots() {
      if (this.knots?.of === this.times.length) return this.knots.list;
      const knots = [];
      let before = 0, last = 0;
      for (const [iteration, elapsed] of this.times) {
        if (elapsed < last) before += last;
        last = elapsed;
        if (!knots.length || iteration > knots.at(-1)[0]) knots.push([iteration, before + elapsed]);
      }
      this.knots = {of: this.times.length, list: knots.length ? knots : [[0, 0]]};
      return this.knots.list;
    }
    // The end of epoch 3 is at 3.
    epochKnots() {
      const knots = [];
      for (const [iteration, epoch] of this.epochs) {
        if (!knots.length || (iteration - 1 > knots.at(-1)[0] && epoch - 1 > knots.at(-1)[1])) knots.push([iteration - 1, epoch - 1]);
      }
      if (!knots.length) return [[0, 0]];
      const [begin, done] = knots.at(-1), previous = knots.at(-2);
      const length = this.perEpoch > 0 ? this.perEpoch : previous ? (begin - previous[0]) / (done - previous[1]) : Math.max(1, this.last - begin);
      knots.push([begin + length, done + 1]);
      return knots;
    }
    // Where an iteration is on an axis: "iteration", "epoch", or "time" in units of these seconds.
    positionOn(axis, unit) {
      if (axis === "epoch") return along(this.epochKnots());
      if (axis !== "time") return iteration => iteration;
      const at = along(this.timeKnots());
      return iteration => at(iteration) / unit;
    }
  }

  Object.assign(Lockstep, {Log, smallerIsBetter, isShare});
})();
