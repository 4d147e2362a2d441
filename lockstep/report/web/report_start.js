"use strict";
{
  const data = JSON.parse(document.getElementById("data").textContent);
  Lockstep.page = data.trials ? Lockstep.sweepReport(data) : Lockstep.report(data);
}
